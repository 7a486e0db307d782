"""CPU kernels: groups of the loop IR to LLVM IR with explicit vectors."""

from __future__ import annotations

from dovetail.codegen.cpu.kernel import generate
from dovetail.codegen.cpu.target import Processor, host

__all__ = ["Processor", "generate", "host"]
