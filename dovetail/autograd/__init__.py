"""Forward and backward of a joint graph as two graphs."""

from dovetail.autograd.partition import draws, partition

__all__ = ["draws", "partition"]
