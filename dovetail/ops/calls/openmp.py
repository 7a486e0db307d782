"""The OpenMP runtime that torch has loaded: where it is, and whether it gives as many threads as it is asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

#: Names of the libraries to look for among those loaded, best first. A process may hold several OpenMP runtimes (other
#: packages bring their own): looking a function up in torch's library also searches what that library is linked to.
LIBRARIES = ("libtorch_cpu", "libgomp", "libiomp5", "libomp")


def candidates() -> list[ctypes.CDLL]:
    """Loaded libraries that may have the functions; dlopen of a loaded file only takes a reference."""
    try:
        with open("/proc/self/maps") as maps:
            paths = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line)
    except OSError:
        return [ctypes.CDLL(None)]
    chosen = [p for name in LIBRARIES for p in paths if p.rsplit("/", 1)[-1].startswith(name)]
    return [ctypes.CDLL(p) for p in chosen]


@cache
def _function(name: str) -> Callable[[], int]:
    """A function of the runtime without arguments; where there is none, one that says 0."""
    for library in candidates():
        function = getattr(library, name, None)
        if function is not None:
            return function
    return lambda: 0


@cache
def gives(threads: int) -> bool:
    """Does every team have as many threads as were asked for? Not under OMP_DYNAMIC, nor beyond OMP_THREAD_LIMIT."""
    limit = _function("omp_get_thread_limit")()
    return not _function("omp_get_dynamic")() and (limit <= 0 or threads <= limit)
