"""Functions of one number: rounding, elementary functions, signs, tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.loops import Const, Expr, Op
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, scale_by, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, in_first_dtype, opmath
from dovetail.ops.lowering.value import Spec, Value

ROWS = Rows()
pointwise = ROWS.pointwise

#: Operators that are one scalar operator; integer arguments become float32 first.
_DIRECT = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh erf erfc"
)
_ALIASES = {
    "special_expm1": "expm1", "special_exp2": "exp2", "special_erf": "erf", "special_erfc": "erfc",
    "special_log1p": "log1p", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh",
}


for _name, _scalar in (*zip(_DIRECT.split(), _DIRECT.split()), *_ALIASES.items()):
    pointwise(f"aten::{_name}", operands=1)(build.same(_scalar))
#: Those with a constructor of their own, which folds.
for _name, _folds in (
    ("reciprocal", build.reciprocal), ("square", build.square), ("neg", build.neg), ("abs", build.abs_),
    ("bitwise_not", build.not_),
):  # fmt: skip
    pointwise(f"aten::{_name}", operands=1)(_folds)


def _rounding(scalar: str) -> Callable[[Expr], Expr]:
    constructor = build.same(scalar)
    return lambda x: constructor(x) if x.dtype in build.FLOATS else x


for _name in ("floor", "ceil", "trunc"):
    pointwise(f"aten::{_name}", operands=1)(_rounding(_name))
pointwise("aten::fix", operands=1)(_rounding("trunc"))


@pointwise("aten::round", operands=1)
def round_(x: Expr, decimals: int = 0) -> Expr:
    """Half to even; with decimals, in units of 10**-decimals."""
    if x.dtype not in build.FLOATS or decimals == 0:
        return x if x.dtype not in build.FLOATS else build.round_(x)
    power = const(10.0 ** abs(decimals), x.dtype)
    if decimals > 0:
        return Op("div", (build.round_(build.mul(x, power)), power), x.dtype)
    return build.mul(build.round_(Op("div", (x, power), x.dtype)), power)


@pointwise("aten::frac", operands=1)
def frac(x: Expr) -> Expr:
    """x without its whole part."""
    return build.sub(x, build.trunc(x))


@pointwise("aten::positive", operands=1)
def positive(x: Expr) -> Expr:
    """x itself."""
    return x


@pointwise("aten::sign", "aten::sgn", operands=1)
def sign(x: Expr) -> Expr:
    """1, 0 or -1; 0 for NaN."""
    if x.dtype is torch.bool:
        return x
    zero = const(0, x.dtype)
    above = build.cast(build.gt(x, zero), x.dtype)
    return above if x.dtype is torch.uint8 else build.sub(above, build.cast(build.lt(x, zero), x.dtype))


@pointwise("aten::deg2rad", operands=1)
def deg2rad(x: Expr) -> Expr:
    """x * pi / 180."""
    return scale_by(x, math.pi / 180)


@pointwise("aten::rad2deg", operands=1)
def rad2deg(x: Expr) -> Expr:
    """x * 180 / pi."""
    return scale_by(x, 180 / math.pi)


@pointwise("aten::sinc", operands=1)
def sinc(x: Expr) -> Expr:
    """sin(pi * x) / (pi * x), 1 at 0."""
    angle = scale_by(x, math.pi)
    return where(build.eq(x, const(0, x.dtype)), const(1, x.dtype), build.div(build.same("sin")(angle), angle))


@pointwise("aten::special_entr", operands=1)
def entropy(x: Expr) -> Expr:
    """-x * log(x): 0 at 0, -inf below."""
    zero = const(0, x.dtype)
    outside = where(build.eq(x, zero), zero, const(-math.inf, x.dtype))
    inside = where(build.gt(x, zero), build.mul(build.neg(x), build.log(x)), outside)
    return where(build.isnan(x), x, inside)


# ---------------------------------------------------------------- tests

for _name, _constructor in (("isnan", build.isnan), ("isinf", build.isinf), ("signbit", build.signbit)):
    pointwise(f"aten::{_name}", operands=1, compute=in_first_dtype)(_constructor)


@pointwise("aten::isfinite", operands=1, compute=in_first_dtype)
def isfinite(x: Expr) -> Expr:
    """Is it neither infinite nor NaN?"""
    return build.not_(build.or_(build.isnan(x), build.isinf(x)))


def _equals(number: float) -> Callable[[Expr], Expr]:
    return lambda x: build.eq(x, const(number, x.dtype)) if x.dtype in build.FLOATS else Const(False, torch.bool)


pointwise("aten::isposinf", operands=1, compute=in_first_dtype)(_equals(math.inf))
pointwise("aten::isneginf", operands=1, compute=in_first_dtype)(_equals(-math.inf))


@pointwise("aten::logical_not", operands=1, compute=in_first_dtype)
def logical_not(x: Expr) -> Expr:
    """Is it zero?"""
    return build.not_(build.truth(x))


# ---------------------------------------------------------------- replacing what is not finite


@ROWS("aten::nan_to_num", cheap=True)
def nan_to_num(
    emit: Emitter, out: Spec, x: Value, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    """NaN and infinities replaced: by 0 and by the largest numbers of the type, unless others are given."""
    if out.dtype not in build.FLOATS:
        return emit.pointwise(out, x.at)
    limits = torch.finfo(out.dtype)
    wide = torch.float32 if out.dtype in build.HALF else out.dtype
    quiet = const(0.0 if nan is None else nan, wide)
    high = const(limits.max if posinf is None else posinf, wide)
    low = const(limits.min if neginf is None else neginf, wide)

    def at(indices: Any) -> Expr:
        value = build.cast(x.at(indices), wide)
        finite = where(build.eq(value, const(-math.inf, wide)), low, value)
        finite = where(build.eq(value, const(math.inf, wide)), high, finite)
        return where(build.isnan(value), quiet, finite)

    return emit.pointwise(out, at)


@ROWS("aten::logit", "aten::special_logit", cheap=True)
def logit(emit: Emitter, out: Spec, x: Value, eps: float | None = None) -> Any:
    """log(x / (1 - x)); with eps, of x kept within [eps, 1 - eps], both rounded to the result's dtype."""
    wide = opmath(out.dtype)
    one = const(1, wide)

    def at(indices: Any) -> Expr:
        value = build.cast(x.at(indices), wide)
        if eps is not None:
            low = build.cast(const(eps, out.dtype), wide)
            high = build.cast(const(1 - low.value, out.dtype), wide)  # type: ignore[attr-defined]
            value = build.minimum(build.maximum(value, low), high)
        return build.log(build.div(value, build.sub(one, value)))

    return emit.pointwise(out, at)
