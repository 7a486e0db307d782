"""Putting tensors together and moving their elements: cat, stack, pad, roll, flip, repeat, *_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.dims import Dim, floordiv, known_less, known_nonnegative, mod
from dovetail.ir.loops import Const, Expr
from dovetail.ops.fake.errors import eager_errors as errors
from dovetail.ops.fake.rules import images
from dovetail.ops.fake.rules import view_rules as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import clamped, replaced

ROWS = Rows()


@ROWS("aten::concat", "aten::concatenate")
@ROWS("aten::cat", shape=images.cat)
def cat(emit: Emitter, out: Spec, tensors: Sequence[Value], dim: int = 0) -> Any:
    """One group for each input, storing into its slice; 1-d tensors of no elements are skipped."""
    rank = len(out.sizes)
    parts = [t for t in tensors if t.rank == rank and 0 not in t.sizes]
    if not parts:
        return emit.constant(out, 0)
    if len(parts) == 1:
        return emit.pointwise(out, parts[0].at)
    axis = dim % rank
    result = emit.new(out)
    first: Dim = 0
    for value in parts:
        part = Spec(value.dtype, value.device, value.sizes, out.strides)  # the region that it fills, in out's order
        emit.write(result, part, _shifted(axis, first), value.at)
        first = first + value.sizes[axis]
    return emit.stored(result)


def _shifted(axis: int, first: Dim) -> Any:
    return lambda indices: replaced(indices, axis, (indices[axis] + first,))


@ROWS("aten::stack", symbolic_shape=shapes.stack)
def stack(emit: Emitter, out: Spec, tensors: Sequence[Value], dim: int = 0) -> Any:
    """One group for each input, as `cat` along a new dimension."""
    if out.empty:
        return emit.constant(out, 0)
    axis = dim % len(out.sizes)
    result = emit.new(out)
    for k, value in enumerate(tensors):
        part = Spec(value.dtype, value.device, value.sizes, replaced(out.strides, axis, ()))
        emit.write(result, part, lambda i, k=k: (*i[:axis], k, *i[axis:]), value.at)  # type: ignore[misc]
    return emit.stored(result)


@ROWS("aten::constant_pad_nd", takes_sizes=True, symbolic_shape=shapes.pad)
def constant_pad_nd(emit: Emitter, out: Spec, self: Value, pad: Sequence[int], value: Any = 0) -> Any:
    """`pad` has (before, after) for the last dimension first; negative numbers cut."""
    before = [0] * self.rank
    padded = [False] * self.rank
    for k in range(len(pad) // 2):
        axis = self.rank - 1 - k
        before[axis] = pad[2 * k]
        padded[axis] = not all(known_nonnegative(-n) for n in pad[2 * k : 2 * k + 2])

    def at(indices: Indices) -> Expr:
        source = tuple(i - b for i, b in zip(indices, before, strict=True))
        inside: Expr = const(True, torch.bool)
        for i, size, needed in zip(source, self.sizes, padded, strict=True):
            if needed:
                inside = build.and_(inside, build.within(i, 0, size))
        if 0 in self.sizes:
            return const(value, self.dtype)
        element = self.load(source, None if isinstance(inside, Const) else inside)
        return where(inside, element, const(value, self.dtype))

    return emit.pointwise(out, at)


# ---------------------------------------------------------------- index maps that strides cannot describe


@ROWS("aten::flip")
def flip(emit: Emitter, out: Spec, self: Value, dims: Sequence[int]) -> Value:
    """Some dimensions read backwards."""
    axes = {d % self.rank for d in dims} if self.rank else set()

    def source(indices: Indices) -> Indices:
        return tuple(self.sizes[d] - 1 - i if d in axes else i for d, i in enumerate(indices))

    return self.remapped(out.sizes, out.strides, source, None)


@ROWS("aten::roll", shape=images.roll, symbolic_shape=shapes.roll)
def roll(emit: Emitter, out: Spec, self: Value, shifts: Any, dims: Any = ()) -> Any:
    """Positions moved, those that leave an end coming in at the other."""
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes or not all(isinstance(shift, int) for shift in shifts):
        return NotImplemented
    if out.empty:
        return self.remapped(out.sizes, out.strides, lambda i: i, None)
    back: list[Dim] = [0] * self.rank
    for shift, axis in zip(shifts, axes, strict=True):
        size = self.sizes[axis % self.rank]
        back[axis % self.rank] = mod(back[axis % self.rank] - shift, size)

    def source(indices: Indices) -> Indices:
        return tuple(mod(i + b, n) if b else i for i, b, n in zip(indices, back, self.sizes, strict=True))

    return self.remapped(out.sizes, out.strides, source, None)


@ROWS("aten::repeat", "aten::tile", takes_sizes=True)
def repeat(emit: Emitter, out: Spec, self: Value, repeats: Sequence[int]) -> Value:
    """The whole, again and again: indices modulo sizes."""
    new = len(out.sizes) - self.rank

    def source(indices: Indices) -> Indices:
        return tuple(0 if n == 1 else mod(i, n) for i, n in zip(indices[new:], self.sizes, strict=True))

    return self.remapped(out.sizes, out.strides, source, None)


@ROWS("aten::repeat_interleave.self_int", may_raise=True)
def repeat_interleave(
    emit: Emitter, out: Spec, self: Value, repeats: int, dim: int | None = None, **kwargs: Any
) -> Any:
    """Each element so many times."""
    if dim is None and self.rank != 1:
        return NotImplemented
    axis = (dim or 0) % self.rank
    return self.remapped(
        out.sizes, out.strides, lambda i: replaced(i, axis, (floordiv(i[axis], repeats),)), None
    )


# ---------------------------------------------------------------- one tensor with a part replaced


@ROWS("aten::slice_scatter", takes_sizes=True, shape=shapes.expanded_scatter,
      symbolic_shape=shapes.scatter(shapes.slice_), refuses=errors.part(torch.ops.aten.slice.Tensor))
def slice_scatter(
    emit: Emitter, out: Spec, self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """A slice replaced."""
    axis = dim % self.rank
    first = clamped(start, self.sizes[axis], 0)
    length = src.sizes[axis]
    if 0 in src.sizes:
        return emit.pointwise(out, self.at)

    def at(indices: Indices) -> Expr:
        i = indices[axis]
        inside = build.within(i, first, first + (length - 1) * step + 1)
        if step != 1:
            inside = build.and_(inside, build.eq(build.index(mod(i - first, step)), const(0, torch.int64)))
        element = src.load(replaced(indices, axis, (floordiv(i - first, step),)), inside)
        return where(inside, build.cast(element, out.dtype), self.at(indices))

    return emit.pointwise(out, at)


@ROWS("aten::select_scatter", takes_sizes=True, shape=shapes.expanded_scatter,
      symbolic_shape=shapes.scatter(shapes.select), refuses=errors.part(torch.ops.aten.select.int))
def select_scatter(emit: Emitter, out: Spec, self: Value, src: Value, dim: int, index: int) -> Any:
    """One position of a dimension replaced."""
    axis = dim % self.rank
    position = index + self.sizes[axis] if known_less(index, 0) else index

    def at(indices: Indices) -> Expr:
        here = build.eq(build.index(indices[axis]), build.index(position))
        element = src.load((*indices[:axis], *indices[axis + 1 :]), here)
        return where(here, build.cast(element, out.dtype), self.at(indices))

    return emit.pointwise(out, at)


@ROWS("aten::diagonal_scatter", symbolic_shape=shapes.scatter(shapes.diagonal),
      refuses=errors.part(torch.ops.aten.diagonal.default))
def diagonal_scatter(
    emit: Emitter, out: Spec, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """A diagonal replaced."""
    a, b = dim1 % self.rank, dim2 % self.rank
    row = max(-offset, 0)
    if 0 in src.sizes:
        return emit.pointwise(out, self.at)

    def at(indices: Indices) -> Expr:
        place = indices[a] - row
        here = build.eq(build.index(indices[b] - indices[a]), const(offset, torch.int64))
        others = tuple(i for d, i in enumerate(indices) if d not in (a, b))
        element = src.load((*others, place), here)
        return where(here, build.cast(element, out.dtype), self.at(indices))

    return emit.pointwise(out, at)
