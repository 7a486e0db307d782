"""LLVM for the processor that this process runs on."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache

import llvmlite
import llvmlite.binding as llvm

CODE_MODEL = "large"


@cache
def processor() -> tuple[str, str]:
    """CPU name and feature string of the host."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


FAST, QUICK = 2, 0  # code, or its making


def new_machine(speed: int = FAST) -> llvm.TargetMachine:
    """The host's code generator. An execution engine owns its own.

    The large code model addresses everything by 64 bits: the linker puts an object's code, its constants and
    the functions it calls wherever memory is free, and the small model's 32-bit distances do not reach
    in a process that maps much (it then aborts, now and then).
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=speed, reloc="static", codemodel=CODE_MODEL
    )


@cache
def _machine(speed: int) -> llvm.TargetMachine:
    return new_machine(speed)


@cache
def identity() -> str:
    """Everything but the text that decides the object code."""
    name, features = processor()
    return f"{llvmlite.__version__} {llvm.llvm_version_info} {llvm.get_process_triple()} {name} {features} {CODE_MODEL}"


def to_object(texts: Sequence[str], speed: int = FAST) -> bytes:
    """Object code of several modules' texts as one: starting the code generator costs 2 ms.

    The texts are what is compiled, without passes over the IR: llvmlite keeps 7 KiB for ever of each builder that has
    run some, and a second run of one calls what the first freed.

    At speed QUICK, code that does nothing but call comes out in a quarter of the time and runs as fast.

    Raises RuntimeError on text that is not valid IR.
    """
    return emit(read(texts), speed)


def read(texts: Sequence[str]) -> llvm.ModuleRef:
    """Several modules' texts as one module."""
    module = llvm.parse_assembly(texts[0])
    for text in texts[1:]:
        module.link_in(llvm.parse_assembly(text))
    return module


def emit(module: llvm.ModuleRef, speed: int) -> bytes:
    """Its object code."""
    code: bytes = _machine(speed).emit_object(module)
    return code


_ENTRY = struct.Struct("<IBBHQQ")
_UNDEFINED = 0


def missing(code: bytes) -> list[str]:
    """Names that the object needs and nobody defines; empty for objects of another format than 64-bit ELF.

    LLVM calls functions for what a processor has no instruction for, by names of its own choice, and a call of one that
    a process does not have ends the process. The names are in the symbol table of the object, an array of `Elf64_Sym`
    (System V ABI, chapter 4).
    """
    if not code.startswith(b"\x7fELF\x02"):
        return []
    sections = {section.name(): section.data() for section in llvm.ObjectFileRef.from_data(code).sections()}
    names = sections[b".strtab"]
    entries = _ENTRY.iter_unpack(sections[b".symtab"])
    wanted = {names[at : names.index(b"\0", at)].decode() for at, _, _, where, _, _ in entries if where == _UNDEFINED}
    process = ctypes.CDLL(None)
    return sorted(name for name in wanted - {""} if not llvm.address_of_symbol(name) and not hasattr(process, name))
