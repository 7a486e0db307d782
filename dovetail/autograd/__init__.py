"""Forward and backward of a joint graph as two graphs."""

from dovetail.autograd.partition import draws, partition
from dovetail.autograd.second_forward import unrepeatable

__all__ = ["draws", "partition", "unrepeatable"]
