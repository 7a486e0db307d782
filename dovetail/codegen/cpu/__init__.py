"""CPU kernels: groups of the loop IR to LLVM IR with explicit vectors."""

from __future__ import annotations

from dovetail.codegen.cpu.kernel import generate
from dovetail.codegen.cpu.target import Target, host

__all__ = ["Target", "generate", "host"]
