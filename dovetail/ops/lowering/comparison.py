"""Comparisons, logical and bitwise operators, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, common_dtype, in_common_dtype, operand, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()
pointwise = ROWS.pointwise


def _comparison(name: str) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: build.compare(name, x, y)


for _names in ("eq", "ne not_equal", "lt less", "le less_equal", "gt greater", "ge greater_equal"):
    _first = _names.split()[0]
    for _name in _names.split():
        row = pointwise(f"aten::{_name}", operands=2, compute=in_common_dtype, takes_numbers=_name == _first)
        row(_comparison(_first))


def _logical(combine: Callable[[Expr, Expr], Expr]) -> Callable[..., Any]:
    def lowering(emit: Emitter, out: Spec, x: Value, y: Value) -> Any:
        return emit.pointwise(
            out, lambda i: combine(build.truth(x.broadcast(i)), build.truth(y.broadcast(i)))
        )

    return lowering


for _name, _combine in (("and", build.and_), ("or", build.or_), ("xor", build.xor)):
    ROWS(f"aten::logical_{_name}", cheap=True)(_logical(_combine))
    pointwise(f"aten::bitwise_{_name}", f"aten::__{_name}__", operands=2)(_combine)


def _shift(build_shift: Callable[..., Expr]) -> Callable[[Expr, Expr], Any]:
    return lambda x, y: build_shift(x, y) if x.dtype in build.INTEGERS else NotImplemented


pointwise("aten::bitwise_left_shift", "aten::__lshift__", operands=2)(_shift(build.shl))
pointwise("aten::bitwise_right_shift", "aten::__rshift__", operands=2)(_shift(build.shr))


@ROWS("aten::where.self", "aten::where.ScalarOther", "aten::where.ScalarSelf", "aten::where.Scalar",
      takes_numbers=True, cheap=True)
def where(emit: Emitter, out: Spec, condition: Value, self: Any, other: Any) -> Any:
    """Arguments are converted to the result's dtype, then selected."""
    if isinstance(self, complex) or isinstance(other, complex):
        return NotImplemented
    dtype = opmath(out.dtype)
    rounded = out.dtype

    def at(indices: Indices) -> Expr:
        chosen = (operand(v, indices, rounded, dtype) for v in (self, other))
        return build.where(build.truth(condition.broadcast(indices)), *chosen)  # type: ignore[arg-type]

    return emit.pointwise(out, at)


@ROWS("aten::masked_fill", takes_numbers=True, cheap=True, trial=trials.MASKED_FILL)
def masked_fill(emit: Emitter, out: Spec, self: Value, mask: Value, value: Any) -> Any:
    """`value` where the mask holds."""
    return where(emit, out, mask, value, self)


@ROWS("aten::isclose", cheap=True)
def isclose(
    emit: Emitter, out: Spec, self: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """|x - y| <= atol + rtol * |y| for finite values, equality for the rest."""
    common = common_dtype([self, other])
    if common not in build.FLOATS or common in build.HALF:
        return NotImplemented

    def at(indices: Indices) -> Expr:
        x, y = (build.cast(v.broadcast(indices), common) for v in (self, other))
        distance = build.abs_(build.sub(x, y))
        allowed = build.add(build.const(atol, common), build.abs_(build.scale_by(y, rtol)))
        finite = build.not_(build.or_(build.isnan(distance), build.isinf(distance)))
        close = build.or_(build.eq(x, y), build.and_(finite, build.le(distance, allowed)))
        return build.or_(close, build.and_(build.isnan(x), build.isnan(y))) if equal_nan else close

    return emit.pointwise(out, at)
