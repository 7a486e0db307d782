"""Tensors made from numbers, and copies and conversions of tensors."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import creation as shapes
from dovetail.ops.fake.rules.view_rules import like
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter, disjoint
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(cheap=True)


@ROWS("aten::full_like", takes_numbers=True, symbolic_shape=like, trial=trials.FULL_LIKE)
@ROWS("aten::new_full", takes_numbers=True, trial=trials.NEW_FULL)
@ROWS("aten::full", takes_numbers=True, trial=trials.FULL)
def full(emit: Emitter, out: Spec, like: Any, *args: Any, **kwargs: Any) -> Any:
    """(sizes, value), (like, value) or (like, sizes, value)."""
    number = kwargs["fill_value"] if "fill_value" in kwargs else args[-1]
    if isinstance(number, Value):
        return emit.pointwise(out, lambda indices: number.broadcast(indices))
    return NotImplemented if isinstance(number, complex) else emit.constant(out, number)


@ROWS("aten::zeros", "aten::new_zeros", "aten::_efficientzerotensor", takes_sizes=True)
@ROWS("aten::zeros_like", takes_sizes=True, symbolic_shape=like)
def zeros(emit: Emitter, out: Spec, *args: Any, **kwargs: Any) -> Any:
    """All zeros, in no memory until something needs it."""
    return emit.constant(out, 0)


@ROWS("aten::ones", "aten::new_ones", takes_sizes=True)
@ROWS("aten::ones_like", takes_sizes=True, symbolic_shape=like)
def ones(emit: Emitter, out: Spec, *args: Any, **kwargs: Any) -> Any:
    """All ones, in no memory until something needs it."""
    return emit.constant(out, 1)


@ROWS("aten::empty", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted",
      takes_sizes=True)
@ROWS("aten::empty_like", takes_sizes=True, symbolic_shape=like)
def empty(emit: Emitter, out: Spec, *args: Any, **kwargs: Any) -> Any:
    """Undefined contents: zeros cost nothing, as whoever reads them computes them in place."""
    return emit.constant(out, 0) if disjoint(out.sizes, out.strides) else NotImplemented


@ROWS("aten::scalar_tensor", takes_numbers=True)
def scalar_tensor(emit: Emitter, out: Spec, s: Any, **kwargs: Any) -> Any:
    """A number as a tensor without dimensions."""
    return NotImplemented if isinstance(s, complex) else emit.constant(out, s)


@ROWS("aten::fill_", trial=trials.FULL_LIKE)
@ROWS("aten::fill", takes_numbers=True, trial=trials.FULL_LIKE)
def fill(emit: Emitter, out: Spec, self: Value, value: Any) -> Any:
    """One number everywhere, in the layout of `self`."""
    return full(emit, out, self, value)


@ROWS("aten::arange", takes_sizes=True, symbolic_shape=shapes.up_to)
@ROWS("aten::arange.start", "aten::arange.start_step", takes_sizes=True, symbolic_shape=shapes.arange)
def arange(emit: Emitter, out: Spec, start: Any, end: Any = None, step: Any = 1, **kwargs: Any) -> Any:
    """start + i*step: in integers exactly, in floats in float64."""
    if end is None:
        start, end = 0, start
    if out.dtype in build.INTEGERS:
        if not all(isinstance(v, (int, dims.Poly)) for v in (start, step)):
            return NotImplemented
        return emit.expression(out, lambda indices: build.index(_first(indices) * step + start))

    def at(indices: Indices) -> Expr:
        position = build.index(_first(indices), torch.float64)
        first = build.index(start, torch.float64) if isinstance(start, dims.Poly) else const(start, torch.float64)
        return build.add(first, build.mul(position, const(step, torch.float64)))

    return emit.expression(out, at)


def _first(indices: Indices) -> Any:
    return indices[0]


@ROWS("aten::linspace")
def linspace(emit: Emitter, out: Spec, start: Any, end: Any, steps: int, **kwargs: Any) -> Any:
    """From both ends towards the middle, so that both are met exactly."""
    if not all(isinstance(v, (int, float)) for v in (start, end)) or out.dtype not in build.FLOATS:
        return NotImplemented
    dtype = opmath(out.dtype)
    if steps < 2:
        return emit.constant(out, start)
    step = build.div(build.sub(const(end, dtype), const(start, dtype)), const(steps - 1, dtype))

    def at(indices: Indices) -> Expr:
        position = indices[0]
        rising = build.add(const(start, dtype), build.mul(step, build.index(position, dtype)))
        falling = build.sub(const(end, dtype), build.mul(step, build.index(steps - 1 - position, dtype)))
        return where(build.lt(build.index(position), const(steps // 2, torch.int64)), rising, falling)

    return emit.pointwise(out, at)


@ROWS("aten::eye", takes_sizes=True)
def eye(emit: Emitter, out: Spec, *args: Any, **kwargs: Any) -> Any:
    """1 where row and column are the same."""
    return emit.expression(out, lambda i: build.cast(build.eq(build.index(i[0]), build.index(i[1])), out.dtype))


def _triangle(keep_upper: bool) -> Any:
    def lowering(emit: Emitter, out: Spec, self: Value, diagonal: int = 0) -> Any:
        def at(indices: Indices) -> Expr:
            row, column = build.index(indices[-2] + diagonal), build.index(indices[-1])
            kept = build.ge(column, row) if keep_upper else build.le(column, row)
            return where(kept, self.load(indices, kept), const(0, self.dtype))

        return emit.pointwise(out, at)

    return lowering


ROWS("aten::triu", takes_sizes=True)(_triangle(True))
ROWS("aten::tril", takes_sizes=True)(_triangle(False))


# ---------------------------------------------------------------- copies and conversions


@ROWS("aten::contiguous")
@ROWS("aten::clone", fresh=True, symbolic_shape=like)
def clone(emit: Emitter, out: Spec, self: Value, **kwargs: Any) -> Any:
    """A copy in the layout that eager gives it."""
    return emit.copy(self, out)


@ROWS("aten::to", "aten::_autocast_to_reduced_precision")
@ROWS("aten::_to_copy", symbolic_shape=like)
def to_copy(emit: Emitter, out: Spec, self: Value, *args: Any, **kwargs: Any) -> Any:
    """A copy in another dtype or memory format; to another device it stays a library call."""
    if self.device != out.device or self.dtype not in build.SUPPORTED or out.dtype not in build.SUPPORTED:
        return NotImplemented
    return emit.pointwise(out, lambda indices: build.rounded(self.at(indices), out.dtype))


@ROWS("aten::copy")
def copy(emit: Emitter, out: Spec, self: Value, src: Value, non_blocking: bool = False) -> Any:
    """`src` broadcast to the shape, layout and dtype of `self`."""
    if src.device != out.device or src.dtype not in build.SUPPORTED or out.dtype not in build.SUPPORTED:
        return NotImplemented
    return emit.pointwise(out, lambda indices: build.rounded(src.broadcast(indices), out.dtype))
