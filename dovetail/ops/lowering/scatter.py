"""Writing at indices that are known only at run time: into zeros, as gradients of reading at them do.

Of a few indices each place of the result asks whether it is one of them. What adds many elements up is sorted, on GPUs
(`segment_sums.py`). Everything else is the library's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.loops import Const, Expr
from dovetail.ops.fake.errors import eager_errors as errors
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter, ranges
from dovetail.ops.lowering.indexing import INTEGER_INDICES, check, out_of_bounds
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.segment_sums import Elements, flat, pays, sums, unflat
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import replaced

ROWS = Rows()

#: So many indices are compared with each place.
FEW = 8


def zeros(self: Value) -> bool:
    """Is it known that nothing else is there?"""
    element = self.at(ranges(self.sizes, "i")) if self.base is None and 0 not in self.sizes else None
    return isinstance(element, Const) and repr(element.value) in ("0", "0.0", "False")


def few(count: Any) -> bool:
    """Are there so few indices that each element may ask about each?"""
    return isinstance(count, int) and count <= FEW


def among(
    emit: Emitter, out: Spec, count: int, hit: Callable[[int, Indices], Expr],
    value: Callable[[int, Indices, Expr], Expr], adds: bool = True,
) -> Value:
    """Zeros, and at a place that is `hit(k, place)` the sum of values, or the last of them."""
    dtype = opmath(out.dtype)

    def at(place: Indices) -> Expr:
        total = const(0, dtype)
        for k in range(count):
            mask = hit(k, place)
            element = build.cast(value(k, place, mask), dtype)
            total = where(mask, build.add(total, element) if adds else element, total)
        return total

    return emit.pointwise(out, at)


def suits(out: Spec, elements: Elements) -> bool:
    """Is adding up in loops faster than the library?"""
    return few(elements.count) or pays(out, elements)


def added(emit: Emitter, out: Spec, elements: Elements) -> Value:
    """Zeros with elements added to their rows."""
    if not few(elements.count):
        return sums(emit, out, elements)
    sizes = [out.sizes[a] for a in elements.axes]

    def hit(k: int, place: Indices) -> Expr:
        return build.eq(elements.row(k), flat([build.index(place[a]) for a in elements.axes], sizes))

    return among(emit, out, elements.count, hit, elements.value)  # type: ignore[arg-type]


@ROWS("aten::embedding_dense_backward", takes_sizes=True)
def embedding_dense_backward(
    emit: Emitter, out: Spec, grad_output: Value, indices: Value, num_weights: Any, padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:  # fmt: skip
    """Rows of the gradient added up where the indices put them."""
    if scale_grad_by_freq or indices.dtype not in INTEGER_INDICES:
        return NotImplemented

    def row(k: Any) -> Expr:
        found = build.cast(indices.at(unflat(k, indices.sizes)), torch.int64)
        if padding_idx < 0:
            return found
        return where(build.eq(found, const(padding_idx, torch.int64)), const(-1, torch.int64), found)

    def value(k: Any, place: Indices, mask: Expr | None) -> Expr:
        return grad_output.load((*unflat(k, indices.sizes), place[1]), mask)

    elements = Elements(indices.numel, (0,), row, value)
    return added(emit, out, elements) if suits(out, elements) else NotImplemented


@ROWS("aten::index_add", may_raise=True, writes_at_indices=True, refuses=errors.index_add)
def index_add(emit: Emitter, out: Spec, self: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Any:
    """Slices added at indices of one dimension."""
    if not self.rank or not zeros(self) or index.rank != 1 or not _added(index, out):
        return NotImplemented
    axis = dim % self.rank
    factor = const(alpha, opmath(out.dtype))

    def value(k: Any, place: Indices, mask: Expr | None) -> Expr:
        return build.mul(build.cast(source.load(replaced(place, axis, (k,)), mask), factor.dtype), factor)

    elements = Elements(index.sizes[0], (axis,), lambda k: build.cast(index.at((k,)), torch.int64), value)
    if not suits(out, elements):
        return NotImplemented
    check(emit, index, self.sizes[axis], False, "index out of range in self")
    return added(emit, out, elements)


@ROWS("aten::scatter_add", may_raise=True, writes_at_indices=True)
def scatter_add(emit: Emitter, out: Spec, self: Value, dim: int, index: Value, src: Value) -> Any:
    """Elements added at indices of their own along one dimension."""
    axis = dim % self.rank if self.rank else 0
    if not _over(self, axis, index) or not _added(index, out):
        return NotImplemented
    size = self.sizes[axis]
    if few(index.sizes[axis]):
        check(emit, index, size, False, out_of_bounds(axis, size))
        return _picked(emit, out, axis, index, lambda place, mask: src.load(place, mask), True)
    if any(step != 0 and n != 1 for n, step in zip(_without(axis, index.sizes), _without(axis, index.strides))):
        return NotImplemented

    def row(k: Any) -> Expr:
        return build.cast(index.at(replaced((0,) * self.rank, axis, (k,))), torch.int64)

    def value(k: Any, place: Indices, mask: Expr | None) -> Expr:
        return src.load(replaced(place, axis, (k,)), mask)

    elements = Elements(index.sizes[axis], (axis,), row, value)
    if not suits(out, elements):
        return NotImplemented
    check(emit, index, size, False, out_of_bounds(axis, size))
    return added(emit, out, elements)


@ROWS("aten::scatter.src", "aten::scatter.value", may_raise=True, writes_at_indices=True)
def scatter(emit: Emitter, out: Spec, self: Value, dim: int, index: Value, src: Any) -> Any:
    """Elements put at indices of their own along one dimension."""
    axis = dim % self.rank if self.rank else 0
    if not _over(self, axis, index) or not few(index.sizes[axis]) or isinstance(src, complex):
        return NotImplemented

    def value(place: Indices, mask: Expr) -> Expr:
        return src.load(place, mask) if isinstance(src, Value) else const(src, out.dtype)

    check(emit, index, self.sizes[axis], False, out_of_bounds(axis, self.sizes[axis]))
    return _picked(emit, out, axis, index, value, False)


@ROWS("aten::_unsafe_index_put", may_raise=True)
@ROWS("aten::index_put", may_raise=True, writes_at_indices=True, refuses=errors.put, trial=trials.PUT)
def index_put(
    emit: Emitter, out: Spec, self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Any:
    """NumPy's advanced assignment by integer tensors, adding up."""
    given = [(axis, value) for axis, value in enumerate(indices) if value is not None]
    whole = all(_added(value, out) for _, value in given)
    if not accumulate or not given or not zeros(self) or not whole:
        return NotImplemented
    axes = tuple(axis for axis, _ in given)
    shared = _broadcast([value.sizes for _, value in given])
    if shared is None or 0 in shared:
        return NotImplemented
    start = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else 0

    def row(k: Any) -> Expr:
        place = unflat(k, shared)
        found = []
        for axis, index in given:
            element = build.cast(index.broadcast(place), torch.int64)
            below = build.lt(element, const(0, torch.int64))
            found.append(where(below, build.add(element, build.index(self.sizes[axis])), element))
        return flat(found, [self.sizes[a] for a in axes])

    def value(k: Any, place: Indices, mask: Expr | None) -> Expr:
        others = [i for d, i in enumerate(place) if d not in axes]
        return values.broadcast((*others[:start], *unflat(k, shared), *others[start:]), mask)

    elements = Elements(dims.product(shared), axes, row, value)
    if not suits(out, elements):
        return NotImplemented
    for axis, index in given:
        check(emit, index, self.sizes[axis], True, out_of_bounds(axis, self.sizes[axis]))
    return added(emit, out, elements)


# ---------------------------------------------------------------- parts of these


def _added(index: Value, out: Spec) -> bool:
    return index.dtype in INTEGER_INDICES and out.dtype is not torch.bool and not out.empty and 0 not in index.sizes


def _over(self: Value, axis: int, index: Value) -> bool:
    """Has the index, of zeros, the same sizes along other axes?"""
    if index.rank != self.rank or not self.rank or 0 in index.sizes or not zeros(self):
        return False
    return _without(axis, index.sizes) == _without(axis, self.sizes)


def _without(axis: int, items: Indices) -> Indices:
    return replaced(items, axis, ())


def _picked(
    emit: Emitter, out: Spec, axis: int, index: Value, value: Callable[[Indices, Expr], Expr], adds: bool
) -> Value:
    """Zeros with values where the index along an axis says."""

    def hit(k: int, place: Indices) -> Expr:
        return build.eq(build.cast(index.at(replaced(place, axis, (k,))), torch.int64), build.index(place[axis]))

    def at(k: int, place: Indices, mask: Expr) -> Expr:
        return value(replaced(place, axis, (k,)), mask)

    return among(emit, out, index.sizes[axis], hit, at, adds)  # type: ignore[arg-type]


def _broadcast(shapes: Sequence[Indices]) -> Indices | None:
    """The shape of all together; None where that depends on sizes which are not known."""
    rank = max(map(len, shapes))
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]
    found = [{n for n in column if n != 1} for column in zip(*padded, strict=True)]
    return None if any(len(n) > 1 for n in found) else tuple(next(iter(n), 1) for n in found)
