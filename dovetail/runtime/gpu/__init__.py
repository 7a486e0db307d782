"""GPU kernels: texts to machine code through Triton, launched through the driver's own interface."""

from __future__ import annotations

from dovetail.runtime.gpu.loading import available, begin, blobs, give_up, load

__all__ = ["available", "begin", "blobs", "give_up", "load"]
