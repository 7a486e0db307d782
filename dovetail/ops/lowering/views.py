"""Views: the same elements under other indices.

Each row gives the index map that readers follow and, where strides describe the result, its place in
the same memory for library calls that need a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.reshape import Chunk, chunks, reshaped_strides
from dovetail.ops.fake.rules import view_rules as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(only_indices=True)

def replaced(items: Sequence[Dim], axis: int, by: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """`items` with the one at `axis` replaced by any number of others."""
    return (*items[:axis], *by, *items[axis + 1 :])


@ROWS("aten::lift_fresh", "aten::lift", "aten::resolve_conj", "aten::resolve_neg")
@ROWS("aten::alias", "aten::detach", symbolic_shape=shapes.alias)
def alias(emit: Emitter, out: Spec, self: Value) -> Value:
    """The same value."""
    return self


# ---------------------------------------------------------------- order and number of dimensions


@ROWS("aten::permute", symbolic_shape=shapes.permute)
def permute(emit: Emitter, out: Spec, self: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order."""
    order = [d % self.rank for d in order]
    where = [order.index(d) for d in range(self.rank)]
    strides = tuple(self.strides[d] for d in order)
    return self.remapped(
        tuple(self.sizes[d] for d in order), strides, lambda i: tuple(i[k] for k in where), self.offset
    )


@ROWS("aten::swapaxes")
@ROWS("aten::transpose", symbolic_shape=shapes.transpose)
def transpose(emit: Emitter, out: Spec, self: Value, dim0: int, dim1: int) -> Value:
    """Two dimensions exchanged."""
    if not self.rank:
        return self
    order = list(range(self.rank))
    a, b = dim0 % self.rank, dim1 % self.rank
    order[a], order[b] = b, a
    return permute(emit, out, self, order)


@ROWS("aten::numpy_T", "aten::mT", "aten::adjoint")
@ROWS("aten::t", symbolic_shape=shapes.t)
def t(emit: Emitter, out: Spec, self: Value) -> Value:
    """A matrix's transpose."""
    return self if self.rank < 2 else transpose(emit, out, self, -2, -1)


@ROWS("aten::unsqueeze", symbolic_shape=shapes.unsqueeze)
def unsqueeze(emit: Emitter, out: Spec, self: Value, dim: int) -> Value:
    """A dimension of size 1 more."""
    axis = dim % (self.rank + 1)
    step = self.strides[axis] * self.sizes[axis] if axis < self.rank else 1
    strides = (*self.strides[:axis], step, *self.strides[axis:])
    return self.remapped(out.sizes, strides, lambda i: (*i[:axis], *i[axis + 1 :]), self.offset)


@ROWS("aten::squeeze", symbolic_shape=shapes.squeeze)
def squeeze(emit: Emitter, out: Spec, self: Value, dim: Any = None) -> Value:
    """Dimensions of size 1 gone."""
    axes = range(self.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d % self.rank for d in axes if self.rank and self.sizes[d] == 1}
    strides = tuple(s for d, s in enumerate(self.strides) if d not in gone)

    def source(indices: Indices) -> Indices:
        rest = iter(indices)
        return tuple(0 if d in gone else next(rest) for d in range(self.rank))

    return self.remapped(out.sizes, strides, source, self.offset)


@ROWS("aten::broadcast_to", "aten::expand_as", takes_sizes=True)
@ROWS("aten::expand", takes_sizes=True, symbolic_shape=shapes.expand)
def expand(emit: Emitter, out: Spec, self: Value, size: Any = None, implicit: bool = False) -> Value:
    """Dimensions of size 1 repeated: their stride is 0."""
    new = len(out.sizes) - self.rank
    grown = [_grows(self, out, d, d + new) for d in range(self.rank)]
    own = tuple(0 if g else s for g, s in zip(grown, self.strides, strict=True))
    single = [g or size == 1 for g, size in zip(grown, self.sizes, strict=True)]

    def source(indices: Indices) -> Indices:
        return tuple(0 if one else i for one, i in zip(single, indices[new:], strict=True))

    strides = own
    for size in reversed(out.sizes[:new]):
        stepped = strides[0] * out.sizes[-len(strides)] if size == 1 and self.rank else 0
        strides = (stepped, *strides)
    return self.remapped(out.sizes, strides, source, self.offset)


def _grows(self: Value, out: Spec, d: int, at: int) -> bool:
    """Is a dimension of one element repeated? A symbolic size that was relied on to be 1 does not show it."""
    if isinstance(self.sizes[d], int):
        return self.sizes[d] == 1 and out.sizes[at] != 1
    return self.sizes[d] != out.sizes[at] and out.strides[at] == 0


# ---------------------------------------------------------------- shape


def reshaped_index(old_sizes: Sequence[Dim], new_sizes: Sequence[Dim], runs: list[Chunk], indices: Indices) -> Indices:
    """Where element `indices` of the new shape lies in the old one."""
    result: list[Dim] = [0] * len(old_sizes)
    for old, new in runs:
        flat: Dim = 0
        for d in new:
            flat = flat * new_sizes[d] + indices[d]
        for d in reversed(old[1:]):
            result[d] = dims.mod(flat, old_sizes[d])
            flat = dims.floordiv(flat, old_sizes[d])
        result[old[0]] = flat
    return tuple(result)


@ROWS("aten::reshape", "aten::flatten", "aten::unflatten", "aten::view_as", "aten::reshape_as", "aten::ravel",
      takes_sizes=True)
@ROWS("aten::_reshape_alias", takes_sizes=True, symbolic_shape=shapes.as_strided)
@ROWS("aten::view", "aten::_unsafe_view", takes_sizes=True, symbolic_shape=shapes.view)
def view(emit: Emitter, out: Spec, self: Value, *args: Any, **kwargs: Any) -> Any:
    """Row-major order of elements is kept; sizes come from `out`."""
    if out.dtype is not self.dtype:
        return view_dtype(emit, out, self)
    if self.sizes == out.sizes:
        return self
    if out.empty or self.spec.empty:
        return self.remapped(out.sizes, out.strides, lambda i: (0,) * self.rank, self.offset)
    runs = chunks(self.sizes, out.sizes)
    strides = reshaped_strides(
        self.strides, out.sizes, runs, lambda a, b: self.strides[a] == self.strides[b] * self.sizes[b]
    )
    if strides is None and self.dtype not in build.SUPPORTED:
        return NotImplemented
    old = self.sizes
    return self.remapped(
        out.sizes, strides or out.strides, lambda i: reshaped_index(old, out.sizes, runs, i),
        self.offset if strides is not None else None,
    )


@ROWS("aten::view.dtype", only_indices=False)
def view_dtype(emit: Emitter, out: Spec, self: Value, *args: Any) -> Any:
    """The same bits as another dtype of the same width."""
    same_width = self.dtype.itemsize == out.dtype.itemsize
    if not same_width or not {self.dtype, out.dtype} <= build.SUPPORTED:
        return NotImplemented
    return self.with_load(out.dtype, lambda i, mask: build.bitcast(self.load(i, mask), out.dtype))


@ROWS("aten::_neg_view")
def neg_view(emit: Emitter, out: Spec, self: Value) -> Any:
    """What memory does not hold: whoever reads it takes the other sign."""
    if self.dtype not in build.SUPPORTED:
        return NotImplemented
    return self.with_load(out.dtype, lambda i, mask: build.neg(self.load(i, mask)))


# ---------------------------------------------------------------- parts


def clamped(position: int | None, size: Dim, default: Dim) -> Dim:
    """A slice bound as Python reads it: from the end when negative, cut to [0, size]."""
    if position is None:
        return default
    if isinstance(position, int) and isinstance(size, int):
        return min(max(position + size if position < 0 else position, 0), size)
    counted = position + size if dims.known_less(position, 0) else position
    return dims.minimum(dims.maximum(counted, 0), size)


@ROWS("aten::slice", takes_sizes=True, symbolic_shape=shapes.slice_)
def slice_(
    emit: Emitter, out: Spec, self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Every `step`-th position of a dimension."""
    axis = dim % self.rank
    first = clamped(start, self.sizes[axis], 0)
    return part(self, axis, first, out.sizes[axis], step)


def part(self: Value, axis: int, first: Dim, length: Dim, step: int = 1) -> Value:
    """Elements first, first + step, ... along `axis`."""
    if first == 0 and step == 1 and length == self.sizes[axis]:
        return self
    return self.remapped(
        replaced(self.sizes, axis, (length,)), replaced(self.strides, axis, (self.strides[axis] * step,)),
        lambda i: replaced(i, axis, (i[axis] * step + first,)), self.offset + self.strides[axis] * first,
    )


@ROWS("aten::narrow", takes_sizes=True)
def narrow(emit: Emitter, out: Spec, self: Value, dim: int, start: int, length: int) -> Any:
    """`length` positions of a dimension, from `start` on."""
    if isinstance(start, Value):
        return NotImplemented
    axis = dim % self.rank
    return part(self, axis, start + self.sizes[axis] if start < 0 else start, length)


@ROWS("aten::select", takes_sizes=True, symbolic_shape=shapes.select)
def select(emit: Emitter, out: Spec, self: Value, dim: int, index: int) -> Value:
    """One position of a dimension, which goes."""
    return taken(self, dim % self.rank, index)


def taken(self: Value, axis: int, index: Dim) -> Value:
    """The slice at one position of `axis`, without that dimension."""
    at = index + self.sizes[axis] if dims.known_less(index, 0) else index
    return self.remapped(
        replaced(self.sizes, axis, ()), replaced(self.strides, axis, ()),
        lambda i: (*i[:axis], at, *i[axis:]), self.offset + self.strides[axis] * at,
    )


@ROWS("aten::unbind", symbolic_shape=shapes.unbind)
def unbind(emit: Emitter, out: tuple[Spec, ...], self: Value, dim: int = 0) -> tuple[Value, ...]:
    """All positions of a dimension."""
    return tuple(taken(self, dim % self.rank, k) for k in range(len(out)))


@ROWS("aten::chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk", "aten::tensor_split",
      takes_sizes=True)
@ROWS("aten::split_with_sizes", takes_sizes=True, symbolic_shape=shapes.split_with_sizes)
@ROWS("aten::split", takes_sizes=True, symbolic_shape=shapes.split)
def split(emit: Emitter, out: tuple[Spec, ...], self: Value, sizes: Any, dim: int = 0) -> Any:
    """Consecutive parts; their lengths come from `out`."""
    axis = dim % self.rank
    first: Dim = 0
    found = []
    for spec in out:
        found.append(part(self, axis, first, spec.sizes[axis]))
        first = first + spec.sizes[axis]
    return tuple(found)


@ROWS("aten::diagonal", symbolic_shape=shapes.diagonal)
def diagonal(emit: Emitter, out: Spec, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The places where two dimensions have the same index, as a last dimension."""
    a, b = dim1 % self.rank, dim2 % self.rank
    row, column = max(-offset, 0), max(offset, 0)
    others = [d for d in range(self.rank) if d not in (a, b)]
    strides = (*(self.strides[d] for d in others), self.strides[a] + self.strides[b])
    start = self.offset if out.empty else self.offset + self.strides[a] * row + self.strides[b] * column

    def source(indices: Indices) -> Indices:
        result: list[Dim] = [0] * self.rank
        for d, i in zip(others, indices, strict=False):
            result[d] = i
        result[a], result[b] = indices[-1] + row, indices[-1] + column
        return tuple(result)

    return self.remapped(out.sizes, strides, source, start)


@ROWS("aten::unfold", takes_sizes=True, symbolic_shape=shapes.unfold)
def unfold(emit: Emitter, out: Spec, self: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of `size` every `step` along a dimension; the place inside a window comes last."""
    if not self.rank:
        return self.remapped(out.sizes, (1,), lambda i: (), self.offset)
    axis = dimension % self.rank
    strides = (*replaced(self.strides, axis, (self.strides[axis] * step,)), self.strides[axis])
    return self.remapped(
        out.sizes, strides, lambda i: replaced(i[:-1], axis, (i[axis] * step + i[-1],)), self.offset
    )


@ROWS("aten::as_strided", takes_sizes=True, counts_from_storage=True, symbolic_shape=shapes.as_strided)
def as_strided(
    emit: Emitter, out: Spec, self: Value, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> Value:
    """Read through a View of the same memory. `storage_offset` counts from the start of the storage."""
    held = emit.materialize(self)
    assert held.base is not None
    offset = held.offset
    if storage_offset is not None:
        offset = storage_offset - emit.origins.get(held.base.name, 0)
    seen = emit.stored(emit.view(held.base, held.dtype, tuple(size), tuple(stride), offset))
    return Value(held.dtype, held.device, tuple(size), tuple(stride), seen.load, held.base, offset)


# ---------------------------------------------------------------- the same as copies


def _copied(row: Any) -> Any:
    """The view, in no memory: whoever needs memory gets a copy laid out as eager's. Loops make that copy."""

    def lowering(emit: Emitter, out: Any, *args: Any, **kwargs: Any) -> Any:
        if any(spec.dtype not in build.SUPPORTED for spec in (out if isinstance(out, tuple) else (out,))):
            return NotImplemented
        result = row(emit, out, *args, **kwargs)
        if isinstance(result, Value):
            return result.as_copy(out.strides)
        return tuple(v.as_copy(spec.strides) for v, spec in zip(result, out, strict=True))

    return lowering


for _name in """alias detach lift_fresh permute transpose t unsqueeze squeeze expand view slice narrow select unbind
    split split_with_sizes diagonal unfold""".split():
    ROWS(f"aten::{_name}_copy")(_copied(ROWS[f"aten::{_name}"].lowering))
ROWS("aten::_reshape_copy")(_copied(view))
ROWS("aten::as_strided_copy", counts_from_storage=True)(_copied(as_strided))
