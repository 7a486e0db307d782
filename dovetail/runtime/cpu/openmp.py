"""The OpenMP runtime that torch has loaded, so that kernels share its threads and its settings.

The launcher calls the functions below, whose names GNU libgomp and LLVM libomp (on Linux) both
export. Where no loaded library has them, `SERIAL` defines them for one thread.
"""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm

from dovetail.ops.calls.openmp import candidates

FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads", "omp_in_parallel")

DECLARATIONS = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_max_threads()
declare i32 @omp_in_parallel()
"""

SERIAL = """
define void @GOMP_parallel(ptr %f, ptr %data, i32 %n, i32 %flags) {
  call void %f(ptr %data)
  ret void
}
define i32 @omp_get_thread_num() {
  ret i32 0
}
define i32 @omp_get_num_threads() {
  ret i32 1
}
define i32 @omp_get_max_threads() {
  ret i32 1
}
define i32 @omp_in_parallel() {
  ret i32 0
}
"""


@cache
def connect() -> bool:
    """Make the runtime's functions known to LLVM; False when there is none."""
    for library in candidates():
        addresses = _addresses(library)
        if addresses:
            for name, address in addresses.items():
                llvm.add_symbol(name, address)
            return True
    return False


def _addresses(library: ctypes.CDLL) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in FUNCTIONS:
        function = getattr(library, name, None)
        if function is None:
            return {}
        found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found
