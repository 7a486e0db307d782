"""Bytecode as data: `decode` gives version-independent instructions with positions."""

from dovetail.bytecode.decode import INLINED, Code, Instruction, decode

__all__ = ["INLINED", "Code", "Instruction", "decode"]
