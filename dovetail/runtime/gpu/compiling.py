"""Triton texts to machine code. Needs no GPU, no host C compiler and no PATH: ptxas comes with Triton."""

from __future__ import annotations

import importlib
import linecache
import re
from dataclasses import dataclass, replace
from typing import Any

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel

#: What a launch of many says of the addresses that it reads.
_ALIGNED = re.compile(r"tl\.multiple_of\((p\d+), 16\)")


@dataclass(frozen=True)
class Binary:
    """Machine code of one kernel: `shared` bytes of shared memory, `warps` of 32 threads in a program."""

    code: bytes
    shared: int
    warps: int

    def to_bytes(self) -> bytes:
        return f"{self.shared} {self.warps}\n".encode() + self.code

    @staticmethod
    def of_bytes(data: bytes) -> Binary:
        head, _, code = data.partition(b"\n")
        shared, warps = map(int, head.split())
        return Binary(code, shared, warps)


def triton() -> Any:
    """Triton's modules, imported when the first kernel is compiled: they take 0.3 s."""
    return importlib.import_module("triton.compiler"), importlib.import_module("triton.backends.compiler")


def identity(capability: int) -> str:
    """What machine code depends on besides a kernel's text."""
    return f"triton {importlib.import_module('triton').__version__} sm_{capability}"


def to_binary(kernel: Kernel, capability: int, aligned: bool = True) -> Binary:
    """The kernel for GPUs of compute capability `capability` (90: Hopper).

    `aligned`: every buffer will begin at a multiple of 16 bytes. Raises InternalError where Triton rejects the text.
    """
    compiler, backends = triton()
    assert kernel.launch is not None
    if not aligned:
        kernel = replace(kernel, text=_ALIGNED.sub(r"\1", kernel.text))
    source = function(kernel)
    names = source.arg_names
    signature, attributes = {}, {}
    for k, (name, kind) in enumerate(zip(names, kernel.launch.arguments, strict=True)):
        signature[name], _, multiple = kind.partition(":")
        if multiple or kind.startswith("*") and aligned:
            attributes[k,] = [["tt.divisibility", 16]]
    options = {
        "num_warps": kernel.launch.warps, "enable_fp_fusion": kernel.launch.fused, "enable_reflect_ftz": False,
        "debug": kernel.launch.checked, "sanitize_overflow": False,
    }  # fmt: skip
    try:
        target = backends.GPUTarget("cuda", capability, 32)
        made = compiler.compile(compiler.ASTSource(source, signature, {}, attributes), target, options)
    except Exception as error:
        raise InternalError("codegen", f"Triton rejects {kernel.symbol}: {error}") from error
    return Binary(made.asm["cubin"], made.metadata.shared, made.metadata.num_warps)


def function(kernel: Kernel) -> Any:
    """The kernel's text as a function that Triton compiles. It reads the source through `linecache`."""
    filename = f"<kernel {kernel.symbol}>"
    linecache.cache[filename] = (len(kernel.text), None, kernel.text.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": f"dovetail.kernels.{kernel.symbol}"}
    exec(compile(kernel.text, filename, "exec"), namespace)
    return namespace[kernel.symbol]
