"""Torch-level graph in, functional ATen graph out."""

from dovetail.normalize.normalize import normalize

__all__ = ["normalize"]
