"""Reading at indices that are known only at run time.

The index tensor is checked against its bounds by a group of its own, before any element is read
through it. An index that is itself a size expression (an arange) needs no check and stays affine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const, Expr, Index
from dovetail.ops.fake.errors import eager_errors as errors
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import replaced

ROWS = Rows()

INTEGER_INDICES = frozenset((torch.int64, torch.int32, torch.int16, torch.int8))


def position(element: Expr, size: Dim, wraps: bool) -> Dim:
    """The element as a place in a dimension of `size`; `wraps`: negative counts from the end."""
    element = build.cast(element, torch.int64)
    if isinstance(element, Const):
        known = int(element.value)
        return known + size if known < 0 else known
    if isinstance(element, Index) and dims.known_nonnegative(element.dim) and dims.known_less(element.dim, size):
        return element.dim
    if wraps:
        zero = const(0, torch.int64)
        element = where(build.lt(element, zero), build.add(element, build.index(size)), element)
    return dims.value(element, size)


def check(emit: Emitter, index: Value, size: Dim, wraps: bool, message: str) -> None:
    """IndexError(message) when an element lies outside [0, size), or [-size, size) if it wraps."""
    end = emit.ends.get(id(index))
    if end is not None and dims.known_less(end - 1, size):
        return

    def inside(indices: Indices) -> Expr:
        element = build.cast(index.at(indices), torch.int64)
        low = build.index(-size) if wraps else const(0, torch.int64)
        return build.and_(build.ge(element, low), build.lt(element, build.index(size)))

    emit.check(index.spec, inside, message)


def written_at(operator: Any, args: Sequence[Any]) -> list[tuple[Any, int, bool]]:
    """Index tensors of an operator that writes at indices, each with its axis, and whether negative ones count from
    the end. If these are all inside the first argument, the operator raises nothing. Empty where that is not so.

    `args`: what the operator takes, tensors as anything that has `dtype` and `sizes`.
    """
    name, rank = operator._schema.name, len(getattr(args[0], "sizes", ())) if args else 0
    if not rank:
        return []
    if name == "aten::index_put":
        found = [(index, axis, True) for axis, index in enumerate(args[1]) if index is not None]
    elif name in _ALONG:
        found = [(args[2], args[1] % rank, name == "aten::index_fill")]
    else:
        return []
    return found if all(index.dtype in INTEGER_INDICES for index, _, _ in found) else []


_ALONG = frozenset(f"aten::{name}" for name in "index_copy index_add index_fill scatter scatter_add".split())


def out_of_bounds(axis: int, size: Dim) -> str:
    """What the error says."""
    return f"index is out of bounds for dimension {axis} with size {size}"


@ROWS("dovetail::classes")
def classes(emit: Emitter, out: Spec, index: Value, count: Dim) -> Any:
    """`dovetail::classes`: check the classes that `one_hot` is given."""
    check(emit, index, count, False, "Class values must be smaller than num_classes.")


@ROWS("aten::embedding", may_raise=True)
def embedding(emit: Emitter, out: Spec, weight: Value, indices: Value, *args: Any, **kwargs: Any) -> Any:
    """Rows of a table. Padding and scaling arguments matter to gradients only."""
    if indices.dtype not in INTEGER_INDICES:
        return NotImplemented
    check(emit, indices, weight.sizes[0], False, "index out of range in self")
    rank = indices.rank

    def at(place: Indices) -> Expr:
        row = position(indices.at(place[:rank]), weight.sizes[0], False)
        return weight.at((row, *place[rank:]))

    return emit.pointwise(out, at)


@ROWS("aten::index_select", may_raise=True)
def index_select(emit: Emitter, out: Spec, self: Value, dim: int, index: Value) -> Any:
    """Positions of one dimension, by a vector of indices."""
    if not self.rank or index.dtype not in INTEGER_INDICES:
        return NotImplemented
    axis = dim % self.rank
    check(emit, index, self.sizes[axis], False, "index out of range in self")

    def at(place: Indices) -> Expr:
        element = index.at((place[axis],) if index.rank else ())
        return self.at(replaced(place, axis, (position(element, self.sizes[axis], False),)))

    return emit.pointwise(out, at)


@ROWS("aten::gather", may_raise=True)
def gather(emit: Emitter, out: Spec, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Any:
    """Along one dimension each element is at an index of its own."""
    if not self.rank or index.rank != self.rank or out.empty or index.dtype not in INTEGER_INDICES:
        return NotImplemented
    axis = dim % self.rank
    check(emit, index, self.sizes[axis], False, out_of_bounds(axis, self.sizes[axis]))

    def at(place: Indices) -> Expr:
        return self.at(replaced(place, axis, (position(index.at(place), self.sizes[axis], False),)))

    return emit.pointwise(out, at)


@ROWS("aten::_unsafe_index", may_raise=True)
@ROWS("aten::index", may_raise=True, refuses=errors.indexed)
def index(emit: Emitter, out: Spec, self: Value, indices: Sequence[Value | None]) -> Any:
    """NumPy's advanced indexing by integer tensors: they broadcast together; their dimensions come
    first in the result unless they index neighbouring dimensions."""
    given = [(axis, value) for axis, value in enumerate(indices) if value is not None]
    if any(value.dtype not in INTEGER_INDICES for _, value in given) or out.empty or 0 in self.sizes:
        return NotImplemented
    axes = [axis for axis, _ in given]
    for axis, value in given:
        size = self.sizes[axis]
        check(emit, value, size, True, out_of_bounds(axis, size))
    common = max(value.rank for _, value in given)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    start = axes[0] if adjacent else 0

    def at(place: Indices) -> Expr:
        shared = place[start : start + common]
        rest = iter((*place[:start], *place[start + common :]))
        chosen = {axis: position(value.broadcast(shared), self.sizes[axis], True) for axis, value in given}
        source = tuple(chosen[d] if d in chosen else next(rest) for d in range(self.rank))
        return self.at(source)

    return emit.pointwise(out, at)
