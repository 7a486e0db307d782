"""Where the recording of a long program on a GPU is cut into CUDA graphs.

The device begins with a graph when all of it has been handed over, which takes up to a microsecond a launch, depending
on the machine: 0.05 to 1.3 ms of DenseNet-121's training step, which itself takes 7. The first graph is short, and each
later one is handed over while those before it run. One that gives its outputs in buckets is cut behind each of them.
"""

from __future__ import annotations

import bisect

from dovetail.ir.devices import traits
from dovetail.ir.liveness import bucket_ends, reads, writes
from dovetail.ir.loops import Batch, Group, LibraryCall, Program
from dovetail.ops.own.collectives import BEGINS, wait

FIRST = 48  # launches
GROWTH = 3

_BEGUN = frozenset(BEGINS.values())


def cuts(program: Program) -> frozenset[int]:
    """The positions of the items that begin a graph."""
    launches = [
        k for k, item in enumerate(program.items)
        if isinstance(item, (Group, Batch, LibraryCall))
        and any(traits(buffer.device).records for buffer in writes(item).values())
    ]  # fmt: skip
    found, size, start = set(), FIRST, FIRST
    waiting = _under_way(program)
    while start + size <= len(launches):
        found.add(launches[start])
        size *= GROWTH
        start += size
    for end in bucket_ends(program):
        after = bisect.bisect_right(launches, end)
        found |= set(launches[after : after + 1]) if after else set()
    return frozenset(found - waiting)


def _under_way(program: Program) -> set[int]:
    """The positions of the items before which a collective has begun that is not waited for: all of one is in one
    graph."""
    found, begun = set[int](), set[str]()
    for position, item in enumerate(program.items):
        if begun:
            found.add(position)
        if isinstance(item, LibraryCall):
            begun -= reads(item).keys() if item.operator is wait else set()
            begun |= writes(item).keys() if item.operator in _BEGUN else set()
    return found
