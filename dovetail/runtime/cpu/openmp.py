"""The OpenMP runtime that torch has loaded, so that kernels share its threads and its settings.

The launcher calls the functions below, whose names GNU libgomp and LLVM libomp (on Linux) both
export. Where no loaded library has them, `SERIAL` defines them for one thread.
"""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm

FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads", "omp_in_parallel")

#: Names of the libraries to look for among those loaded, best first. A process may hold several OpenMP runtimes (other
#: packages bring their own): looking a function up in torch's library also searches what that library is linked to.
LIBRARIES = ("libtorch_cpu", "libgomp", "libiomp5", "libomp")

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
    for library in _candidates():
        addresses = _addresses(library)
        if addresses:
            for name, address in addresses.items():
                llvm.add_symbol(name, address)
            return True
    return False


def _candidates() -> list[ctypes.CDLL]:
    """Loaded libraries that may have the functions; dlopen of a loaded file only takes a reference."""
    try:
        with open("/proc/self/maps") as maps:
            paths = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line)
    except OSError:
        return [ctypes.CDLL(None)]
    chosen = [p for name in LIBRARIES for p in paths if p.rsplit("/", 1)[-1].startswith(name)]
    return [ctypes.CDLL(p) for p in chosen]


def _addresses(library: ctypes.CDLL) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in FUNCTIONS:
        function = getattr(library, name, None)
        if function is None:
            return {}
        found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found
