"""What machine code calls that is not its own: a call of a function that a process does not have ends the process.

LLVM calls functions for what a processor has no instruction for, by names of its own choice. The names are in the
symbol table of the object, an array of `Elf64_Sym` (System V ABI, chapter 4).
"""

from __future__ import annotations

import ctypes
import struct

import llvmlite.binding as llvm

_ENTRY = struct.Struct("<IBBHQQ")
_UNDEFINED = 0


def missing(code: bytes) -> list[str]:
    """Names that the object needs and nobody defines; empty for objects of another format than 64-bit ELF."""
    if not code.startswith(b"\x7fELF\x02"):
        return []
    sections = {section.name(): section.data() for section in llvm.ObjectFileRef.from_data(code).sections()}
    names = sections[b".strtab"]
    entries = _ENTRY.iter_unpack(sections[b".symtab"])
    wanted = {names[at : names.index(b"\0", at)].decode() for at, _, _, where, _, _ in entries if where == _UNDEFINED}
    process = ctypes.CDLL(None)
    return sorted(name for name in wanted - {""} if not llvm.address_of_symbol(name) and not hasattr(process, name))
