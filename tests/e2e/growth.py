"""What stays in memory: of functions that are gone, of recompilations, of sizes and of calls.

    python -m tests.e2e.growth [NAME ...] [--share 0.1]

Each case runs in two halves after a warm-up of one; the second half must not leave more than its bound behind. Bytes
are those of the process (its resident set), as machine code and PyTorch's own objects are seen nowhere else.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

import dovetail
from dovetail.ir import stores


def resident() -> int:
    """KiB, without what the allocator keeps for itself.

    Pages of libraries are left out: the system takes them back and gives them again as it likes, megabytes at a time.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status", encoding="utf-8") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssShmem", "VmSwap")))


def distinct(number: int) -> Callable[..., Any]:
    space: dict[str, Any] = {"F": F}
    exec(f"def f(x): return F.gelu(x * {number + 0.5}).softmax(-1) + x.sum() * {number}", space)
    return space["f"]


X = torch.randn(4, 8)


def functions_and_resets(first: int, count: int) -> None:
    """Each is dropped; a reset every hundred."""
    for k in range(first, first + count):
        dovetail.compile(distinct(k))(X)
        if k % 100 == 99:
            dovetail.reset()
    dovetail.reset()


def functions_that_are_dropped(first: int, count: int) -> None:
    """Without a reset: what is kept for those who compile the same again has a bound, here a twentieth of it."""
    dovetail.compile(distinct(first))(X)  # imports what has stores
    for kept in (getattr(forget, "__self__", None) for forget in stores._EMPTIED):
        if isinstance(kept, stores.Store):
            kept.most = min(kept.most, 250)
        elif isinstance(kept, stores.InternTable):
            kept.limit = stores.LEAST = 10_000
    for k in range(first, first + count):
        dovetail.compile(distinct(k))(X)


def recompilations(first: int, count: int) -> None:
    """Of one function for constants that change; past the limit it would run in eager, so it begins anew."""
    compiled = dovetail.compile(lambda x, k: F.gelu(x * 2 + len(k)) + x.sum())
    for k in range(first, first + count):
        compiled(X, "a" * (k % 7))
        if k % 7 == 6:
            dovetail.reset()
    dovetail.reset()


SIZED = dovetail.compile(lambda x: F.gelu(x).softmax(-1), dynamic=True)
CALLED = dovetail.compile(distinct(0))


def sizes(first: int, count: int) -> None:
    for k in range(first, first + count):
        SIZED(torch.randn(2 + k % 97, 3 + k))


def calls(first: int, count: int) -> None:
    for _ in range(count):
        CALLED(X)


@dataclass(frozen=True)
class Case:
    run: Callable[[int, int], None]
    count: int  # at full size
    bound: float  # KiB that each of the second half may leave


#: Of functions stay the keys of their files in the cache (`runtime/store.py`), half a KiB each, and gaps.
CASES = {
    "functions, with resets": Case(functions_and_resets, 2000, 6),
    "functions that are dropped": Case(functions_that_are_dropped, 1000, 4),
    "recompilations": Case(recompilations, 2000, 4),
    "sizes": Case(sizes, 1000, 8),
    "calls": Case(calls, 100_000, 0.02),
}


def left(case: Case, share: float) -> float:
    """KiB that one function, recompilation, size or call leaves behind, once stores are full."""
    half = max(int(case.count * share) // 2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.run(0, half)
        before = resident()
        case.run(half, half)
    return (resident() - before) / half


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    for name in chosen.names or CASES:
        case, found = CASES[name], left(CASES[name], chosen.share)
        failed |= found > case.bound
        print(f"{name}: {found:.3f} KiB each, at most {case.bound}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
