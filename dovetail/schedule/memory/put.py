"""Put rows into an input in a kernel, where calls are libraries' that each take a launch.

before:  a0 = aten.index_copy_(a0, 1, a1, b2)
after:   group for x0 < 4, x1 < 3, x2 < 64:    a0[x0, value(a1[x1]), x2] = b2[x0, x1, x2]

Several that wait for nothing of one another are one launch then, as the keys and values of a cache are. Lowering has
checked the indices. Of equal ones any may be the last, as in eager mode.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.devices import traits
from dovetail.ir.loops import Buffer, BufferRef, Group, LibraryCall, Load, Loop, Store
from dovetail.ops.lowering.emit import nested, ranges
from dovetail.ops.lowering.indexing import position
from dovetail.ops.lowering.value import Indices

aten = torch.ops.aten


def as_kernel(call: LibraryCall, old: Buffer) -> Group | None:
    """What writes the same into `old`; None where the library does it."""
    place = _PLACES.get(call.operator)
    found = place(*call.args, **call.kwargs) if place is not None and traits(old.device).puts else None
    if found is None:
        return None
    axis, index, wraps, source = found
    sizes = (*old.sizes[:axis], dims.product(index.sizes), *old.sizes[axis + 1 :])
    if len(index.sizes) > 1 or source.dtype is not old.dtype or not _spread(source.sizes, sizes):
        return None
    at = ranges(sizes, f"{call.name}_")
    row = position(Load(index, (at[axis],)[: len(index.sizes)]), old.sizes[axis], wraps)
    behind = at[len(at) - len(source.sizes) :]
    read = Load(source, tuple(0 if n == 1 else i for n, i in zip(source.sizes, behind, strict=True)))
    store = Store(old, (*at[:axis], row, *at[axis + 1 :]), read)
    return Group(call.name, nested(at, old.strides), (Loop((), (store,)),))


def _spread(sizes: Indices, over: Indices) -> bool:
    """Is what has these sizes broadcast over the others?"""
    return len(sizes) <= len(over) and all(n in (1, m) for n, m in zip(sizes[::-1], over[::-1], strict=False))


Found = tuple[int, Buffer, bool, Buffer]


def _copied(into: BufferRef, axis: int, index: BufferRef, source: BufferRef) -> Found | None:
    rank = len(into.buffer.sizes)
    return (axis % rank, index.buffer, False, source.buffer) if rank else None


def _put(into: BufferRef, indices: Any, source: BufferRef, accumulate: bool = False) -> Found | None:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if accumulate or len(given) != 1:
        return None
    ((axis, index),) = given
    return axis, index.buffer, True, source.buffer


#: axis, index, whether its negative elements count from the end, and rows
_PLACES: dict[Any, Any] = {aten.index_copy.default: _copied, aten.index_put.default: _put}

