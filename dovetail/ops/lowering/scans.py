"""Running sums, products and extremes along one dimension, where a row fits into one program of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dovetail.ir.devices import traits
from dovetail.ir.launch import LONGEST_ROW, WIDE_TILE
from dovetail.ir.loops import Expr
from dovetail.ops.fake.rules import reductions
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()


def _fits(out: Spec, dim: int) -> bool:
    """Is a row along `dim` one program's? Where rows lie across memory, many are read side by side."""
    if not traits(out.device).scans or not out.sizes:
        return False
    length, step = out.sizes[dim], out.strides[dim]
    return isinstance(length, int) and length <= (LONGEST_ROW if step == 1 else LONGEST_ROW // WIDE_TILE)


def _scan(kind: str) -> Any:
    def lowering(emit: Emitter, out: Spec, self: Value, dim: int, dtype: Any = None) -> Any:
        if not _fits(out, dim) or out.dtype is torch.bool:
            return NotImplemented
        wide = opmath(out.dtype)

        def at(indices: Indices) -> Expr:
            return build.cast(build.cast(self.at(indices), out.dtype), wide)

        found = emit.scan(replace(out, dtype=wide), dim % len(out.sizes), kind, at)
        return found if wide is out.dtype else emit.pointwise(out, found.at)

    return lowering


ROWS("aten::cumsum", symbolic_shape=reductions.running)(_scan("sum"))
ROWS("aten::cumprod", symbolic_shape=reductions.running)(_scan("prod"))
ROWS("aten::logcumsumexp")(_scan("logsum"))


def _extreme(kind: str) -> Any:
    def lowering(emit: Emitter, out: tuple[Spec, Spec], self: Value, dim: int) -> Any:
        """Values, and where each was met last: the largest place so far where a value was the extreme."""
        values, places = out
        if not _fits(values, dim) or values.dtype is torch.bool:
            return NotImplemented
        axis, wide = dim % len(values.sizes), opmath(values.dtype)

        def at(indices: Indices) -> Expr:
            return build.cast(self.at(indices), wide)

        found = emit.scan(replace(values, dtype=wide), axis, kind, at)

        def place(indices: Indices) -> Expr:
            own = at(indices)
            met = build.or_(build.eq(own, found.at(indices)), build.isnan(own))
            return build.where(met, build.index(indices[axis]), const(0, torch.int64))

        where = emit.scan(places, axis, "max", place)
        return (found if wide is values.dtype else emit.pointwise(values, found.at)), where

    return lowering


ROWS("aten::cummax")(_extreme("max"))
ROWS("aten::cummin")(_extreme("min"))
