"""Torch-level graph in, functional ATen graph out."""

from dovetail.normalize.joint import normalize_joint
from dovetail.normalize.normalize import normalize

__all__ = ["normalize", "normalize_joint"]
