"""Bytecode as data: `decode` gives version-independent instructions with positions."""

from dovetail.bytecode.decode import Code, Instruction, decode

__all__ = ["Code", "Instruction", "decode"]
