"""Softmax and its relatives: the largest element of each row, the sum of exponentials, the result.

Each step is a group of its own; scheduling puts them together over one row.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from dovetail.ir.devices import traits
from dovetail.ir.loops import Expr
from dovetail.ops.fake.rules import normalization as shapes
from dovetail.ops.fake.rules.reductions import reduction
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.reduction import Axes, axes_of, extreme, kept_spec, total
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()


def _largest(emit: Emitter, self: Value, axes: list[int], dtype: torch.dtype) -> Value:
    return extreme(emit, kept_spec(self, axes, dtype), self, axes, "max", True)


@ROWS("aten::softmax.int")
@ROWS("aten::_softmax", shape=shapes.softmax)
def softmax(emit: Emitter, out: Spec, self: Value, dim: int, *args: Any, **kwargs: Any) -> Any:
    """exp(x - max) / sum of it, along one dimension."""
    if self.dtype not in build.FLOATS:
        return NotImplemented
    wide = opmath(torch.promote_types(self.dtype, out.dtype))
    axes = axes_of(self.rank, dim)
    if not self.rank or out.empty:
        return emit.pointwise(out, lambda i: _of_one(build.cast(self.at(i), wide)))
    largest = _largest(emit, self, axes, wide)

    def shifted(indices: Indices) -> Expr:
        return build.exp(build.sub(build.cast(self.at(indices), wide), largest.broadcast(indices)))

    exponentials = emit.pointwise(Spec(wide, out.device, self.sizes, out.strides), shifted)
    sums = functools.partial(total, emit, kept_spec(self, axes, wide), exponentials, axes, "sum", True, wide)
    if traits(out.device).divides or wide is not torch.float32:
        divisors = sums()
        return emit.pointwise(out, lambda i: build.div(exponentials.at(i), divisors.broadcast(i)))
    # On a GPU an exact division is ten instructions: 8% of the time of a kernel on 16384 rows of 4096 (H200).
    factors = sums(finish=lambda x: build.div(const(1, wide), x))
    return emit.pointwise(out, lambda i: build.mul(exponentials.at(i), factors.broadcast(i)))


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
    axes = axes_of(self.rank, dim)
    largest = _largest(emit, self, axes, wide)

    def reference(indices: Indices) -> Expr:
        value = largest.broadcast(indices)
        return where(build.eq(build.abs_(value), const(math.inf, wide)), const(0, wide), value)

    def term(indices: Indices) -> Expr:
        return build.exp(build.sub(build.cast(self.at(indices), wide), reference(indices)))

    logs = emit.reduce(kept_spec(self, axes, wide), self.spec, axes, "sum", term, wide, build.log, True)

    def result(indices: Indices) -> Expr:
        rest = iter(indices)
        full = indices if keepdim else tuple(0 if d in axes else next(rest) for d in range(self.rank))
        return build.add(logs.broadcast(full), reference(full))

    return emit.pointwise(out, result)
