"""GPU kernels: groups of the loop IR to Triton."""

from __future__ import annotations

from dovetail.codegen.gpu.kernel import generate

__all__ = ["generate"]
