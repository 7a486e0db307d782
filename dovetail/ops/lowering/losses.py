"""Losses that read one number of each row: the negative log likelihood of a class."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.indexing import position
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()

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
