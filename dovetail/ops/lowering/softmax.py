"""Softmax and its relatives, and the losses that read one number of each of its rows.

The largest element of each row, the sum of exponentials and the result are groups of their own; scheduling puts them
together over one row.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from dovetail.ir.devices import traits
from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import normalization as shapes
from dovetail.ops.fake.rules.reductions import reduction
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.indexing import position
from dovetail.ops.lowering.reduction import Axes, axes_of, extreme, kept_spec, total, unreduced
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()


def _largest(emit: Emitter, self: Value, axes: list[int], dtype: torch.dtype) -> Value:
    return extreme(emit, kept_spec(self, axes, dtype), self, axes, "max", True)


def _as_stored(emit: Emitter, self: Value) -> Value:
    """Beside the least number of float16, which masks add, float32 would keep what scores differ by."""
    if self.dtype is not torch.float16:
        return self
    return emit.pointwise(self.spec, lambda i: build.as_stored(self.at(i)))


@ROWS("aten::softmax.int")
@ROWS("aten::_softmax", shape=shapes.softmax)
def softmax(emit: Emitter, out: Spec, self: Value, dim: int, *args: Any, **kwargs: Any) -> Any:
    """exp(x - max) / sum of it, along one dimension."""
    return _softmax(emit, out, self, dim)


@ROWS("aten::_safe_softmax")
def safe_softmax(emit: Emitter, out: Spec, self: Value, dim: int, *args: Any, **kwargs: Any) -> Any:
    """Rows of -inf become zeros."""
    return _softmax(emit, out, self, dim, zero=-math.inf)


def _softmax(emit: Emitter, out: Spec, self: Value, dim: int, zero: float | None = None) -> Any:
    """`zero`: the largest element of rows whose results are zeros."""
    if self.dtype not in build.FLOATS:
        return NotImplemented
    wide = opmath(torch.promote_types(self.dtype, out.dtype))
    axes = axes_of(self.rank, dim)
    if not self.rank or out.empty:
        return emit.pointwise(out, lambda i: _unless(zero, self.at(i), _of_one(build.cast(self.at(i), wide))))
    self = _as_stored(emit, self)
    largest = _largest(emit, self, axes, wide)

    def shifted(indices: Indices) -> Expr:
        return build.exp(build.sub(build.cast(self.at(indices), wide), largest.broadcast(indices)))

    exponentials = emit.pointwise(Spec(wide, out.device, self.sizes, out.strides), shifted)
    sums = functools.partial(total, emit, kept_spec(self, axes, wide), exponentials, axes, "sum", True, wide)
    # On a GPU an exact division is ten instructions: 8% of the time of a kernel on 16384 rows of 4096 (H200).
    exact = traits(out.device).divides or wide is not torch.float32
    factors = sums() if exact else sums(finish=lambda x: build.div(const(1, wide), x))
    scaled = build.div if exact else build.mul

    def element(indices: Indices) -> Expr:
        found = scaled(exponentials.at(indices), factors.broadcast(indices))
        return _unless(zero, largest.broadcast(indices), found)

    return emit.pointwise(out, element)


def _unless(zero: float | None, x: Expr, found: Expr) -> Expr:
    """What was found, or 0 where x is `zero`."""
    return found if zero is None else where(build.eq(x, const(zero, x.dtype)), const(0, found.dtype), found)


def _of_one(x: Expr) -> Expr:
    """The softmax of a single number: exp(x - x)."""
    return build.exp(build.sub(x, x))


@ROWS("aten::log_softmax.int")
@ROWS("aten::_log_softmax", shape=shapes.softmax)
def log_softmax(emit: Emitter, out: Spec, self: Value, dim: int, *args: Any, **kwargs: Any) -> Any:
    """x - max - log(sum(exp(x - max))), along one dimension."""
    if self.dtype not in build.FLOATS:
        return NotImplemented
    wide = opmath(torch.promote_types(self.dtype, out.dtype))
    axes = axes_of(self.rank, dim)
    if not self.rank or out.empty:
        return emit.pointwise(out, lambda i: build.log(_of_one(build.cast(self.at(i), wide))))
    self = _as_stored(emit, self)
    largest = _largest(emit, self, axes, wide)

    def shifted(indices: Indices) -> Expr:
        return build.sub(build.cast(self.at(indices), wide), largest.broadcast(indices))

    logs = emit.reduce(
        kept_spec(self, axes, wide), self.spec, axes, "sum", lambda i: build.exp(shifted(i)), wide, build.log, True
    )
    return emit.pointwise(out, lambda i: build.sub(shifted(i), logs.broadcast(i)))


@ROWS("aten::special_logsumexp")
@ROWS("aten::logsumexp", shape=reduction)
def logsumexp(emit: Emitter, out: Spec, self: Value, dim: Axes, keepdim: bool = False) -> Any:
    """An infinite maximum is replaced by 0, so that inf - inf never arises."""
    if self.dtype not in build.FLOATS or self.spec.empty:
        return NotImplemented
    wide = opmath(self.dtype)
    axes, self = axes_of(self.rank, dim), _as_stored(emit, self)
    largest = _largest(emit, self, axes, wide)

    def reference(indices: Indices) -> Expr:
        value = largest.broadcast(indices)
        return where(build.eq(build.abs_(value), const(math.inf, wide)), const(0, wide), value)

    def term(indices: Indices) -> Expr:
        return build.exp(build.sub(build.cast(self.at(indices), wide), reference(indices)))

    logs = emit.reduce(kept_spec(self, axes, wide), self.spec, axes, "sum", term, wide, build.log, True)

    def result(indices: Indices) -> Expr:
        full = indices if keepdim else unreduced(indices, axes)
        return build.add(logs.broadcast(full), reference(full))

    return emit.pointwise(out, result)


# ---------------------------------------------------------------- the negative log likelihood of a class

NONE, MEAN = 0, 1  # of PyTorch's reductions; 2 is a sum


@ROWS("aten::nll_loss_forward", "aten::nll_loss2d_forward", may_raise=True, trial=trials.EMPTY)
def nll_loss(
    emit: Emitter, out: tuple[Spec, Spec], self: Value, target: Value, weight: Value | None, reduction: int,
    ignore_index: int,
) -> Any:  # fmt: skip
    """The loss, and what the classes that were not ignored weigh."""
    if self.dtype not in build.FLOATS or self.spec.empty or target.dtype is not torch.int64:
        return NotImplemented
    axis = 0 if self.rank == 1 else 1
    classes, wide = self.sizes[axis], opmath(self.dtype)

    def wanted(indices: Indices) -> Expr:
        return build.ne(target.broadcast(indices), const(ignore_index, torch.int64))

    def known(indices: Indices) -> Expr:
        place = target.broadcast(indices)
        inside = build.and_(build.ge(place, const(0, torch.int64)), build.lt(place, build.index(classes)))
        return build.or_(inside, build.not_(wanted(indices)))

    def place(indices: Indices) -> Any:
        return position(where(wanted(indices), target.broadcast(indices), const(0, torch.int64)), classes, False)

    def weighs(indices: Indices) -> Expr:
        one = const(1, wide) if weight is None else build.cast(weight.at((place(indices),)), wide)
        return where(wanted(indices), one, const(0, wide))

    def term(indices: Indices) -> Expr:
        row = (*indices[:axis], place(indices), *indices[axis:])
        value = build.neg(build.cast(self.at(row), wide))
        value = value if weight is None else build.mul(value, build.cast(weight.at((place(indices),)), wide))
        return where(wanted(indices), value, const(0, wide))

    emit.check(target.spec, known, "Target is out of bounds.")
    if reduction == NONE and self.rank > 1:
        return emit.pointwise(out[0], term), emit.constant(out[1], 0)
    axes = list(range(target.rank))
    weights = emit.reduce(out[1], target.spec, axes, "sum", weighs, wide)
    if reduction != MEAN:
        return emit.reduce(out[0], target.spec, axes, "sum", term, wide), weights
    both = Spec(wide, out[0].device, (), ())
    total, number = (emit.reduce(both, target.spec, axes, "sum", f, wide) for f in (term, weighs))
    return emit.pointwise(out[0], lambda i: build.div(total.broadcast(()), number.broadcast(()))), weights
