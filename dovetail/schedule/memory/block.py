"""Place temporaries in one block, sharing memory between those that are never alive together.

before:  b0, b1, b2 of 1 MiB each; b0 is last read by the item that writes b1
after:   b0 at 0, b1 at 1 MiB, b2 at 0: a block of 2 MiB

First fit over a sorted list of free gaps; a buffer's place is freed after its last use. The block stays
allocated between calls: memory that the C library has to ask the system for costs about 1 us a page (4 KiB) when it
is first touched, as much as it takes a kernel to fill it, and large temporaries would pay that on every call. What does
not fit below `LARGEST_BLOCK` is allocated by itself, so that a rare large call does not keep its memory.

Buffers of symbolic sizes have places of their own, which they share too; where those begin is computed in each call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from dovetail.ir import dims, dimvalues
from dovetail.ir.devices import traits
from dovetail.ir.kernel import ALIGNMENT, MemoryPlan
from dovetail.ir.liveness import last_uses, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Batch, Group, LibraryCall, Program
from dovetail.ops.calls.schema import facts

# Their operators keep none of their arguments.
LIBRARIES = frozenset({"aten", "prims", "mkldnn", "dovetail", "_c10d_functional"})
LARGEST_BLOCK = 256 << 20  # bytes
NEAR = 8  # sizes whose typical values differ by a larger factor do not share a place


def plan(program: Program, has_out: frozenset[object]) -> MemoryPlan:
    """`has_out`: the operators that codegen can call with a result buffer of our own."""
    roots = view_roots(program)
    escaping = {roots.get(name, name) for name in (*output_buffers(program), *_given_away(program))}
    last = last_uses(program)
    expiring: dict[int, list[str]] = {}
    space, slots = _Space(), _Slots()
    sizes: dict[str, int] = {}
    for position, item in enumerate(program.items):
        if isinstance(item, (Group, Batch)) or (isinstance(item, LibraryCall) and item.operator in has_out):
            for name, buffer in writes(item).items():
                nbytes = buffer.span * buffer.dtype.itemsize
                here = traits(buffer.device).host  # PyTorch keeps the memory of others
                if not here or name in escaping or name in sizes or name in slots.places or buffer.kind == "input":
                    continue
                if name in roots:  # it lies where what it is written over does
                    continue
                if not isinstance(nbytes, int):
                    slots.take(name, nbytes)
                    expiring.setdefault(last[name], []).append(name)
                    continue
                size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
                if space.take(name, size):
                    sizes[name] = size
                    expiring.setdefault(last[name], []).append(name)
        for name in expiring.pop(position, ()):
            if name in sizes:
                space.release(name, sizes[name])
            else:
                slots.release(name)
    return MemoryPlan(space.offsets, space.top, slots.places, tuple(map(tuple, slots.sizes)))


def _given_away(program: Program) -> Iterator[str]:
    """What a user's own operators get to see, which may keep it, and what views are made of by a library."""
    for item in program.items:
        if isinstance(item, LibraryCall) and (_foreign(item.operator) or facts(item.operator).view):
            yield from reads(item)


def _foreign(operator: Any) -> bool:
    return operator._schema.name.partition("::")[0] not in LIBRARIES


class _Slots:
    """Places for buffers of symbolic sizes; a place is as large as the largest that was ever in it."""

    def __init__(self) -> None:
        self.sizes: list[list[dims.Dim]] = []
        self.places: dict[str, int] = {}
        self.free: set[int] = set()

    def take(self, name: str, nbytes: dims.Dim) -> None:
        """A free place of the same size, else the one nearest in typical size, else a new one."""
        wanted = dimvalues.typical(nbytes)
        free = sorted(self.free)
        place = next((k for k in free if nbytes in self.sizes[k]), None)
        near = [k for k in free if self._typical(k) <= NEAR * wanted and wanted <= NEAR * self._typical(k)]
        if place is None and near:
            place = min(near, key=lambda k: abs(self._typical(k) - wanted))
        if place is None:
            place = len(self.sizes)
            self.sizes.append([])
        self.free.discard(place)
        if nbytes not in self.sizes[place]:
            self.sizes[place].append(nbytes)
        self.places[name] = place

    def _typical(self, place: int) -> int:
        return max(map(dimvalues.typical, self.sizes[place]))

    def release(self, name: str) -> None:
        self.free.add(self.places[name])


class _Space:
    """Free gaps below `top`, sorted by offset and never adjacent to one another."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.offsets: dict[str, int] = {}
        self.top = 0

    def take(self, name: str, size: int) -> bool:
        """Find a place; False where that would make the block too large."""
        for k, (start, length) in enumerate(self.gaps):
            if length >= size:
                self.offsets[name] = start
                self.gaps[k : k + 1] = [(start + size, length - size)] if length > size else []
                return True
        grows = bool(self.gaps) and sum(self.gaps[-1]) == self.top  # the gap at the end
        start = self.gaps[-1][0] if grows else self.top
        if start + size > LARGEST_BLOCK:
            return False
        if grows:
            self.gaps.pop()
        self.offsets[name] = start
        self.top = start + size
        return True

    def release(self, name: str, size: int) -> None:
        start = self.offsets[name]
        k = bisect.bisect(self.gaps, (start, 0))
        end = start + size
        if k < len(self.gaps) and self.gaps[k][0] == end:
            end += self.gaps.pop(k)[1]
        if k and sum(self.gaps[k - 1]) == start:
            start = self.gaps.pop(k - 1)[0]
            k -= 1
        self.gaps.insert(k, (start, end - start))
