"""Kernels to machine code. Needs no GPU, no host C compiler and no PATH: ptxas comes with Triton."""

from __future__ import annotations

import importlib
import importlib.util
import re
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.runtime.gpu.assembler import Binary, Task, assemble
from dovetail.runtime.gpu.workers import WORKERS

#: What a launch of many says of the addresses that it reads.
_ALIGNED = re.compile(r"tl\.multiple_of\((p\d+), 16\)")


def identity(capability: int) -> str:
    """What machine code depends on besides a kernel's text. Raises ImportError where there is no Triton."""
    return f"triton {_version()} sm_{capability}"


@cache
def _version() -> str:
    """Triton's, by what its folder says that is installed there: importing it takes 0.2 s, which a process that finds
    all of its kernels on disk need not spend."""
    found = importlib.util.find_spec("triton")
    if found is not None and found.origin is not None:
        for distribution in distributions(name="triton", path=[str(Path(found.origin).parents[1])]):
            return distribution.version
    return str(importlib.import_module("triton").__version__)


def to_binary(kernel: Kernel, capability: int, aligned: bool = True) -> Binary:
    """The kernel for GPUs of compute capability `capability` (90: Hopper).

    `aligned`: every buffer will begin at a multiple of 16 bytes. Raises InternalError where Triton rejects the text.
    """
    task = _task(kernel, capability, aligned)
    made = WORKERS.compiled(task)
    if made is not None:
        return made
    try:
        return assemble(task)
    except Exception as error:
        raise InternalError("codegen", f"Triton rejects {kernel.symbol}: {error}") from error


def _task(kernel: Kernel, capability: int, aligned: bool) -> Task:
    launch = kernel.launch
    assert launch is not None
    text = kernel.text if aligned else _ALIGNED.sub(r"\1", kernel.text)
    kinds = [kind.partition(":") for kind in launch.arguments]
    multiples = [k for k, (kind, _, multiple) in enumerate(kinds) if multiple or kind.startswith("*") and aligned]
    options = {
        "num_warps": launch.warps, "enable_fp_fusion": launch.fused, "enable_reflect_ftz": False,
        "debug": launch.checked, "sanitize_overflow": False,
    }  # fmt: skip
    return Task(kernel.symbol, text, [kind for kind, _, _ in kinds], multiples, options, capability)
