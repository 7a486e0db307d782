"""Bytecode as data: `decode` gives version-independent instructions with positions."""

from dovetail.bytecode.decode import INLINED, Code, Instruction, decode, entrance
from dovetail.bytecode.instructions import ROWS, UNKNOWN, Row

__all__ = ["INLINED", "ROWS", "UNKNOWN", "Code", "Instruction", "Row", "decode", "entrance"]
