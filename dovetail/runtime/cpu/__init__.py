"""CPU kernels: compiled in this process, kept on disk, called as builtin functions."""

from __future__ import annotations

from dovetail.runtime.cpu.loading import begin, blobs, load

__all__ = ["begin", "blobs", "load"]
