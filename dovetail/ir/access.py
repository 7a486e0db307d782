"""Which elements of memory a group touches, by enumeration: exact, for sizes that are numbers and not too large.

The verifier asks; compilation itself never does. A result of None means that it could not be decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.ir import dims, dimvalues
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Buffer, Group, Load, Loop, Store, value_exprs

#: Iterations of one loop beyond which enumeration is not tried.
LARGEST = 1 << 18

Accesses = tuple[Buffer, tuple[Dim, ...]]


def positions(buffer: Buffer, index: tuple[Dim, ...], ranges: Sequence[Symbol]) -> Any:
    """The element touched at every index of `ranges`, as an array of that shape; None when undecided."""
    shape: list = [s.extent for s in ranges]
    known = all(isinstance(n, int) for n in (*shape, *buffer.strides, buffer.offset))
    if not known or len(index) != len(buffer.strides) or any(True for _ in value_exprs(index)):
        return None
    if int(math.prod(shape)) > LARGEST or not all(s in ranges for dim in index for s in dims.symbols(dim)):
        return None
    env = {s: np.arange(s.extent).reshape([-1 if k == at else 1 for k in range(len(ranges))])  # type: ignore[arg-type]
           for at, s in enumerate(ranges)}
    place: Any = buffer.offset
    for dim, stride in zip(index, buffer.strides, strict=True):
        place = place + dimvalues.evaluate(dim, env) * stride
    return np.broadcast_to(place, shape)


def covers_once(stores: Sequence[tuple[Store, tuple[Symbol, ...]]]) -> bool | None:
    """Do the stores to one buffer, each over its ranges, touch every element at most once?"""
    found = [positions(store.buffer, store.index, ranges) for store, ranges in stores]
    if any(p is None for p in found) or len({s.buffer.dtype.itemsize for s, _ in stores}) > 1:
        return None
    everything = np.concatenate([p.ravel() for p in found])
    return len(np.unique(everything)) == len(everything)


def stays_inside(view: Buffer, base: Buffer) -> bool | None:
    """Does `view` touch only bytes that `base`, whose offset counts from the same place, spans?"""
    inner, outer = _span(view), _span(base)
    return None if inner is None or outer is None else outer[0] <= inner[0] and inner[1] <= outer[1]


def _span(buffer: Buffer) -> tuple[int, int] | None:
    """First and one past the last byte; None for symbolic sizes."""
    lo = hi = buffer.offset
    for size, stride in zip(buffer.sizes, buffer.strides, strict=True):
        if not isinstance(size, int) or not isinstance(stride, int):
            return None
        if size == 0:
            return 0, 0
        lo, hi = lo + min(0, (size - 1) * stride), hi + max(0, (size - 1) * stride)
    if not isinstance(lo, int) or not isinstance(hi, int):
        return None
    return lo * buffer.dtype.itemsize, (hi + 1) * buffer.dtype.itemsize


# ---------------------------------------------------------------- one iteration reading what another writes


def crosses_iterations(group: Group, roots: Mapping[str, str]) -> Iterator[str]:
    """Loads of what another outer index, or another iteration of the same loop, stores.

    `roots` says which names are one memory.
    """
    stores = [(k, *place) for k, loop in enumerate(group.loops) for place in _stores(loop)]
    for k, loop in enumerate(group.loops):
        for buffer, index in _loads(loop):
            for at, stored, to in stores:
                same = roots.get(stored.name, stored.name) == roots.get(buffer.name, buffer.name)
                if same and (index != to or buffer != stored or k != at):
                    yield from _conflict(group, (k, buffer, index), (at, stored, to))


def _stores(loop: Loop) -> list[Accesses]:
    return [(s.buffer, s.index) for s in loop.body if isinstance(s, Store)]


def _loads(loop: Loop) -> list[Accesses]:
    """Loads without a mask: where a mask is false nothing is read."""
    roots = [root for s in loop.body for root in statement_roots(s)]
    return [(n.buffer, n.index) for n in nodes(roots) if isinstance(n, Load) and n.mask is None]


def _conflict(
    group: Group, load: tuple[int, Buffer, tuple[Dim, ...]], store: tuple[int, Buffer, tuple[Dim, ...]]
) -> Iterator[str]:
    (k, buffer, index), (at, stored, to) = load, store
    if buffer.dtype.itemsize != stored.dtype.itemsize:
        return
    outer = tuple(dims.as_symbol(r) for r in group.outer)
    read = positions(buffer, index, (*outer, *map(dims.as_symbol, group.loops[k].inner)))
    written = positions(stored, to, (*outer, *map(dims.as_symbol, group.loops[at].inner)))
    if read is None or written is None or not read.size or not written.size:
        return
    rows = int(np.prod(read.shape[: len(outer)], dtype=np.int64))
    if buffer.kind != "local" and _differ(read.reshape(rows, -1), written.reshape(rows, -1)):
        yield f"an outer index reads {buffer}[{_text(index)}], which another one writes as {stored}[{_text(to)}]"
    if k == at:
        for r, w in zip(read.reshape(rows, -1)[:64], written.reshape(rows, -1)[:64], strict=True):
            if _differ(r.reshape(-1, 1), w.reshape(-1, 1)):
                yield f"an iteration reads {buffer}[{_text(index)}], which another one writes as {stored}[{_text(to)}]"
                return


def _differ(read: Any, written: Any) -> bool:
    """Is anything in one row of `read` in a different row of `written`?"""
    low = min(read.min(), written.min())
    owner = np.full(int(max(read.max(), written.max()) - low) + 1, -1)
    owner[written - low] = np.arange(len(written))[:, None]
    found = owner[read - low]
    return bool(((found >= 0) & (found != np.arange(len(read))[:, None])).any())


def _text(index: tuple[Dim, ...]) -> str:
    return ", ".join(map(str, index))
