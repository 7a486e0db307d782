"""What code generation needs to know of the processor."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Processor:
    """`vector_bytes`: width of a vector register. `masked`: masked loads and stores are cheap.

    `halves`: there are instructions that convert float16.
    """

    vector_bytes: int
    masked: bool
    x86: bool = True
    halves: bool = True


@cache
def host() -> Processor:
    """The processor that this process runs on."""
    features = llvm.get_host_cpu_features()
    x86 = bool(features.get("sse2")) or llvm.get_process_triple().startswith(("x86_64", "i686"))
    halves = not x86 or bool(features.get("f16c"))
    if features.get("avx512f") and features.get("avx512dq") and features.get("avx512bw") and features.get("avx512vl"):
        return Processor(64, True, True, halves)
    if features.get("avx2"):
        return Processor(32, False, True, halves)
    return Processor(16, False, x86, halves)
