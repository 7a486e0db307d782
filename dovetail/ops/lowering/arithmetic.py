"""Arithmetic operators. Formulas round where PyTorch's CPU kernels do, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.devices import on_host
from dovetail.ir.loops import Const, Expr
from dovetail.ops.fake.rules import elementwise as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import abs_, compare, const, scale_by, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, elementwise, in_first_dtype, in_result_dtype
from dovetail.ops.lowering.value import Spec, Value

ROWS = Rows()
pointwise = ROWS.pointwise


def is_float(x: Expr) -> bool:
    """Is it a floating-point expression?"""
    return x.dtype in build.FLOATS


def rounds_alike(arguments: list, out: Spec) -> bool:
    """On the host, several of eager's kernels round numbers, and tensors without dimensions, to a half type first."""
    tensors = all(isinstance(value, Value) and value.rank > 0 for value in arguments)
    return tensors or out.dtype not in build.HALF or not on_host(out)


def _sums_alike(arguments: list, out: Spec) -> bool:
    """A factor beside the operands is contracted into the addition, but for the last elements."""
    return len(arguments) == 2 and rounds_alike(arguments, out)


def _contracted(arguments: list, out: Spec) -> bool:
    """Eager contracts products into additions, but for the last elements."""
    return False


@pointwise("aten::add", operands=2, takes_numbers=True, same_bits=_sums_alike)
def add(x: Expr, y: Expr, alpha: Any = 1) -> Expr:
    """x + alpha * y."""
    return build.add(x, y if alpha == 1 else build.mul(y, const(alpha, y.dtype)))


@pointwise("aten::sub", operands=2, takes_numbers=True, same_bits=_sums_alike)
def sub(x: Expr, y: Expr, alpha: Any = 1) -> Expr:
    """x - alpha * y."""
    return build.sub(x, y if alpha == 1 else build.mul(y, const(alpha, y.dtype)))


@pointwise("aten::rsub", operands=2, takes_numbers=True, same_bits=_sums_alike)
@pointwise("aten::rsub.Tensor", operands=2, takes_numbers=True, same_bits=_sums_alike, shape=shapes.rsub)
def rsub(x: Expr, y: Expr, alpha: Any = 1) -> Expr:
    """y - alpha * x."""
    return build.sub(y, x if alpha == 1 else build.mul(x, const(alpha, x.dtype)))


pointwise("aten::mul", operands=2, takes_numbers=True)(build.mul)
pointwise("aten::div.Tensor", "aten::div.Scalar", "aten::true_divide", operands=2, takes_numbers=True)(build.div)


def nonzero_constant(y: Expr) -> bool:
    """An integer divisor that needs no check for zero, nor for the overflow of min / -1."""
    return isinstance(y, Const) and y.value not in (0, -1)


@pointwise("aten::floor_divide", operands=2, takes_numbers=True)
def floor_division(x: Expr, y: Expr) -> Any:
    """Python's // on floats: through fmod, so that 1.0 // 0.1 is 9 (PEP 238; CPython's float_floor_div)."""
    if not is_float(x):
        return build.floordiv(x, y) if nonzero_constant(y) else NotImplemented
    zero, one = const(0, x.dtype), const(1, x.dtype)
    rest = build.fmod(x, y)
    quotient = build.div(build.sub(x, rest), y)
    other_sign = build.ne(build.lt(y, zero), build.lt(rest, zero))
    quotient = where(build.and_(build.ne(rest, zero), other_sign), build.sub(quotient, one), quotient)
    down = build.floor(quotient)
    down = where(build.gt(build.sub(quotient, down), const(0.5, x.dtype)), build.add(down, one), down)
    plain = build.div(x, y)
    result = where(build.ne(quotient, zero), down, build.copysign(zero, plain))
    return where(build.eq(y, zero), plain, result)


def trunc_division(x: Expr, y: Expr) -> Any:
    """x / y towards 0; of integers only by a constant that cannot fail."""
    if is_float(x):
        return build.trunc(build.div(x, y))
    return build.truncdiv(x, y) if nonzero_constant(y) else NotImplemented


_floor = elementwise(floor_division, 2, in_result_dtype)
_trunc = elementwise(trunc_division, 2, in_result_dtype)
_true = elementwise(build.div, 2, in_result_dtype)


@ROWS("aten::div.Tensor_mode", "aten::div.Scalar_mode", takes_numbers=True, cheap=True)
def div_mode(emit: Emitter, out: Spec, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """In half precision eager rounds the quotient before it truncates."""
    if rounding_mode is None:
        return _true(emit, out, x, y)
    if rounding_mode == "floor":
        return _floor(emit, out, x, y)
    if out.dtype not in build.HALF:
        return _trunc(emit, out, x, y)
    quotient = _true(emit, out, x, y)
    return emit.pointwise(out, lambda indices: build.trunc(build.cast(quotient.at(indices), torch.float32)))


def _rest(of: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Any]:
    return lambda x, y: of(x, y) if is_float(x) or nonzero_constant(y) else NotImplemented


# The remainder has the sign of y, as Python's; fmod that of x, as C's.
pointwise("aten::remainder", operands=2, takes_numbers=True, same_bits=rounds_alike)(_rest(build.remainder))
pointwise("aten::fmod", operands=2, takes_numbers=True, same_bits=rounds_alike)(_rest(build.fmod))


# ---------------------------------------------------------------- powers

_FLOAT_POWERS: dict[float, Callable[[Expr], Expr]] = {
    0.5: build.sqrt, -0.5: build.rsqrt, 1: lambda x: x, 2: build.square, -1: build.reciprocal,
    3: lambda x: build.mul(build.square(x), x), -2: lambda x: build.reciprocal(build.square(x)),
}


def integer_power(x: Expr, exponent: int) -> Expr:
    """x ** exponent for exponent >= 0, wrapping around; binary exponentiation (Knuth, TAOCP 4.6.3)."""
    result: Expr = const(1, x.dtype)
    factor = x
    while exponent:
        if exponent & 1:
            result = build.mul(result, factor)
        exponent >>= 1
        factor = build.mul(factor, factor) if exponent else factor
    return result


def power(x: Expr, y: Expr) -> Any:
    """x ** y: by products, roots and reciprocals where the exponent is a constant that eager does so."""
    if not is_float(x):
        small = isinstance(y, Const) and x.dtype is not torch.bool and 0 <= y.value <= 64
        return integer_power(x, int(y.value)) if small else NotImplemented  # type: ignore[attr-defined]
    if isinstance(y, Const):
        if y.value == 0:
            return const(1, x.dtype)
        if y.value in _FLOAT_POWERS:
            return _FLOAT_POWERS[y.value](x)
    return build.pow_(x, y)


_power = elementwise(power, 2, in_result_dtype)
_general_power = elementwise(build.pow_, 2, in_result_dtype)


@ROWS("aten::pow.Tensor_Scalar", "aten::pow.Tensor_Tensor", takes_numbers=True, cheap=True)
@ROWS("aten::pow.Scalar", takes_numbers=True, cheap=True, shape=shapes.power)
def pow_(emit: Emitter, out: Spec, x: Any, y: Any) -> Any:
    """float16 takes no square root for 0.5: pow(-inf, 0.5) is inf where sqrt(-inf) is NaN."""
    roots = out.dtype is torch.float16 and y in (0.5, -0.5) if isinstance(y, float) else False
    return (_general_power if roots else _power)(emit, out, x, y)


# ---------------------------------------------------------------- products with a factor


@pointwise("aten::addcmul", operands=3, takes_numbers=True, same_bits=_contracted)
def addcmul(x: Expr, tensor1: Expr, tensor2: Expr, value: Any = 1) -> Expr:
    """x + value * tensor1 * tensor2."""
    return build.add(x, build.mul(scale_by(tensor1, value), tensor2))


@pointwise("aten::addcdiv", operands=3, takes_numbers=True)
def addcdiv(x: Expr, tensor1: Expr, tensor2: Expr, value: Any = 1) -> Expr:
    """x + value * tensor1 / tensor2."""
    return build.add(x, build.div(scale_by(tensor1, value), tensor2))


@pointwise("aten::lerp", operands=3, takes_numbers=True, same_bits=_contracted)
def lerp(x: Expr, end: Expr, weight: Expr) -> Expr:
    """x + weight * (end - x), from the nearer end."""
    difference = build.sub(end, x)
    near = build.add(x, build.mul(weight, difference))
    far = build.sub(end, build.mul(difference, build.sub(const(1, x.dtype), weight)))
    return where(build.lt(abs_(weight), const(0.5, x.dtype)), near, far)


# ---------------------------------------------------------------- extremes

pointwise("aten::maximum", "aten::max.other", operands=2)(build.maximum)
pointwise("aten::minimum", "aten::min.other", operands=2)(build.minimum)


def _number(chosen: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """One of two, or the one that is no NaN."""
    return lambda x, y: where(build.isnan(x), y, where(build.isnan(y), x, chosen(x, y)))


pointwise("aten::fmax", operands=2)(_number(build.at_least))
pointwise("aten::fmin", operands=2)(_number(build.at_most))


@pointwise("aten::clamp", operands=3, takes_numbers=True)
def clamp(self: Expr, min: Expr | None = None, max: Expr | None = None) -> Expr:
    """NaN in the input or a bound gives NaN; the upper bound wins over the lower."""
    low = self if min is None else build.at_least(self, min)
    return low if max is None else build.at_most(low, max)


@pointwise("aten::clamp_min", operands=2, takes_numbers=True)
def clamp_min(self: Expr, min: Expr) -> Expr:
    """At least `min`; NaN stays."""
    return build.at_least(self, min)


@pointwise("aten::clamp_max", operands=2, takes_numbers=True)
def clamp_max(self: Expr, max: Expr) -> Expr:
    """At most `max`; NaN stays."""
    return build.at_most(self, max)


# ---------------------------------------------------------------- two floats


@pointwise("aten::hypot", operands=2)
def hypot(x: Expr, y: Expr) -> Expr:
    """In float64 squares of float32 neither overflow nor vanish; float64 itself is scaled by the larger."""
    infinite = build.or_(build.isinf(x), build.isinf(y))
    if x.dtype is torch.float32:
        wide = (build.cast(x, torch.float64), build.cast(y, torch.float64))
        plain = build.cast(build.sqrt(build.add(*map(build.square, wide))), x.dtype)
    else:
        large, small = build.maximum(abs_(x), abs_(y)), build.minimum(abs_(x), abs_(y))
        ratio = where(build.eq(large, const(0, x.dtype)), large, build.div(small, large))
        plain = build.mul(large, build.sqrt(build.add(const(1, x.dtype), build.square(ratio))))
    return where(infinite, const(float("inf"), x.dtype), plain)


def _log_of_sum(power: Callable[[Expr], Expr], scale: float) -> Callable[[Expr, Expr], Expr]:
    """log(b**x + b**y) to base b, from the larger one; `scale` is 1 / log(b)."""

    def formula(x: Expr, y: Expr) -> Expr:
        rest = scale_by(build.log1p(power(build.neg(abs_(build.sub(x, y))))), scale)
        return where(build.and_(build.isinf(x), build.eq(x, y)), x, build.add(build.maximum(x, y), rest))

    return formula


pointwise("aten::logaddexp", operands=2)(_log_of_sum(build.exp, 1))
pointwise("aten::logaddexp2", operands=2)(_log_of_sum(build.exp2, 1.4426950408889634))


def _times_log(log: Callable[[Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """x * log(y), 0 where x is 0; NaN where y is."""

    def formula(x: Expr, y: Expr) -> Expr:
        product = where(build.eq(x, const(0, x.dtype)), const(0, x.dtype), build.mul(x, log(y)))
        return where(build.isnan(y), y, product)

    return formula


pointwise("aten::xlogy", operands=2, takes_numbers=True)(_times_log(build.log))
pointwise("aten::special_xlog1py", operands=2)(_times_log(build.log1p))
pointwise("aten::atan2", operands=2)(build.atan2)
pointwise("aten::copysign", operands=2, takes_numbers=True)(build.copysign)
_nextafter = elementwise(build.nextafter, 2, in_result_dtype)


@ROWS("aten::nextafter", cheap=True)
def nextafter(emit: Emitter, out: Spec, x: Any, y: Any) -> Any:
    """A half's neighbour is not float32's."""
    return NotImplemented if out.dtype in build.HALF else _nextafter(emit, out, x, y)


@pointwise("aten::heaviside", operands=2, compute=in_first_dtype)
def heaviside(x: Expr, values: Expr) -> Expr:
    """0 below 0, 1 above, `values` at 0."""
    zero = const(0, x.dtype)
    return where(build.eq(x, zero), values, build.cast(compare("gt", x, zero), x.dtype))
