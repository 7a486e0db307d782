"""Constructors of scalar expressions, with the algebra that no bit of a result can tell.

Arguments of one operator have one dtype; the caller casts. Folding happens only where it is exact
for NaN, infinities, -0.0 and wrapped integers: x*1, x/1, x - 0, select on a constant, a widening
conversion undone. `cast(f32 -> bf16 -> f32)` is kept: it rounds, and only the scheduler knows whether
eager's rounding must be followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.devices import HOST
from dovetail.ir.dimbounds import Bound
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const, Expr, Index, Op, Param
from dovetail.ir.stores import remembered

Number = bool | int | float

HALF = frozenset((torch.bfloat16, torch.float16))
FLOATS = frozenset((torch.float32, torch.float64, *HALF))
INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8))
SUPPORTED = frozenset((*FLOATS, *INTEGERS, torch.bool))

_BITS = {torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64, torch.uint8: 8}
#: Float formats by precision; a conversion to one further right keeps every value.
_MANTISSA = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
_EXPONENT = {torch.bfloat16: 8, torch.float16: 5, torch.float32: 8, torch.float64: 11}


# ---------------------------------------------------------------- constants and conversions


@remembered(5000)
def _const(value: Number, kind: str, negative_zero: bool, dtype: torch.dtype) -> Const:
    if dtype is torch.bool:
        return Const(bool(value), dtype)
    if dtype in FLOATS:
        number = -0.0 if negative_zero else float(value)
        if dtype is not torch.float64 and math.isfinite(number) and number != 0:
            rounded = torch.tensor(number, dtype=dtype, device=HOST).item()
            number = rounded if dtype in HALF or not math.isfinite(rounded) else number
        return Const(number, dtype)
    bits = _BITS[dtype]
    whole = int(value) & ((1 << bits) - 1)
    if dtype is not torch.uint8 and whole >> (bits - 1):
        whole -= 1 << bits
    return Const(whole, dtype)


def const(value: Any, dtype: torch.dtype) -> Expr:
    """`value` converted as PyTorch converts a Python number to `dtype`; integers wrap around.

    A number that is known only when the program runs is converted then.
    """
    if isinstance(value, Param):
        return cast(value, dtype)
    if isinstance(value, dims.Poly):
        return cast(Index(value), dtype)
    if isinstance(value, float) and value != value:
        return Const(math.nan, dtype)
    negative_zero = isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
    return _const(value, type(value).__name__, negative_zero, dtype)


def index(dim: Dim, dtype: torch.dtype = torch.int64) -> Expr:
    """The value of a size expression."""
    return cast(const(dim, torch.int64) if isinstance(dim, int) else Index(dim), dtype)


def widens(source: torch.dtype, target: torch.dtype) -> bool:
    """Does `target` hold every value of `source`, so that converting back restores it?"""
    if source is torch.bool or source is target:
        return True
    if source in FLOATS:
        return target in FLOATS and _MANTISSA[source] <= _MANTISSA[target] and _EXPONENT[source] <= _EXPONENT[target]
    if target in _MANTISSA:
        return source in _BITS and _BITS[source] - (source is not torch.uint8) <= _MANTISSA[target]
    if target not in _BITS:
        return False
    if source is torch.uint8:
        return _BITS[target] > 8
    return target is not torch.uint8 and _BITS[source] <= _BITS[target]


def cast(x: Expr, dtype: torch.dtype) -> Expr:
    """`Tensor.to(dtype)`."""
    if x.dtype is dtype:
        return x
    if isinstance(x, Const):
        finite = not isinstance(x.value, float) or math.isfinite(x.value)
        if finite or dtype in FLOATS or dtype is torch.bool:
            rounded = x if x.dtype is not torch.float32 else Const(_as_float32(x.value), torch.float32)
            return const(rounded.value, dtype)
    if isinstance(x, Op) and x.name == "cast" and widens(x.args[0].dtype, x.dtype):
        return cast(x.args[0], dtype)
    by_way_of = _THROUGH.get(dtype) if x.dtype in FLOATS else None
    return Op("cast", (cast(x, by_way_of) if by_way_of else x,), dtype)


def rounded(x: Expr, dtype: torch.dtype) -> Expr:
    """The same where the program itself asks for the dtype: what a shorter float loses stays lost."""
    made = cast(x, dtype)
    if isinstance(made, Op) and made.name == "cast" and dtype in HALF and made.args[0].dtype in FLOATS:
        return Op("rounded", made.args, dtype)
    return made


def as_stored(x: Expr) -> Expr:
    """The number of a half type that memory would hold, also where it is never stored."""
    return Op("rounded", (cast(x, torch.float32),), x.dtype)


#: Floats reach short integers through a longer one, as in C10: what lies outside wraps around.
_THROUGH = {torch.uint8: torch.int64, torch.int8: torch.int32, torch.int16: torch.int32}


@remembered(5000)
def _as_float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32, device=HOST).item() if math.isfinite(value) else value


def bitcast(x: Expr, dtype: torch.dtype) -> Expr:
    """The same bits as another dtype of the same width."""
    return x if x.dtype is dtype else Op("bitcast", (x,), dtype)


# ---------------------------------------------------------------- arithmetic


def _is(x: Expr, value: float) -> bool:
    """Is x the constant `value`, with that sign of zero?"""
    if not isinstance(x, Const) or x.value != value:
        return False
    return value != 0 or x.dtype not in FLOATS or math.copysign(1, x.value) == math.copysign(1, value)


def _whole(*xs: Expr) -> bool:
    return all(isinstance(x, Const) and x.dtype in INTEGERS for x in xs)


def add(x: Expr, y: Expr) -> Expr:
    """x + y; without a zero that changes no bit."""
    if x.dtype is torch.bool:
        return or_(x, y)
    if _whole(x, y):
        return const(x.value + y.value, x.dtype)  # type: ignore[attr-defined]
    zero = -0.0 if x.dtype in FLOATS else 0  # x + 0.0 is not x for x = -0.0
    if _is(y, zero):
        return x
    return y if _is(x, zero) else Op("add", (x, y), x.dtype)


def sub(x: Expr, y: Expr) -> Expr:
    """x - y; without a zero."""
    if _whole(x, y):
        return const(x.value - y.value, x.dtype)  # type: ignore[attr-defined]
    return x if _is(y, 0) else Op("sub", (x, y), x.dtype)


def mul(x: Expr, y: Expr) -> Expr:
    """x * y; without a one."""
    if x.dtype is torch.bool:
        return and_(x, y)
    if _whole(x, y):
        return const(x.value * y.value, x.dtype)  # type: ignore[attr-defined]
    if _is(y, 1):
        return x
    return y if _is(x, 1) else Op("mul", (x, y), x.dtype)


def div(x: Expr, y: Expr) -> Expr:
    """True division of floats. A constant power of two becomes an exact product."""
    if _is(y, 1):
        return x
    if isinstance(y, Const) and y.value and math.isfinite(y.value):
        mantissa, exponent = math.frexp(abs(y.value))
        if mantissa == 0.5 and abs(exponent) < 100:
            return mul(x, const(1.0 / y.value, x.dtype))
    return Op("div", (x, y), x.dtype)


def neg(x: Expr) -> Expr:
    """-x."""
    if isinstance(x, Op) and x.name == "neg":
        return x.args[0]
    return Op("neg", (x,), x.dtype)


def abs_(x: Expr) -> Expr:
    """The magnitude; x of what has no sign."""
    return x if x.dtype in (torch.bool, torch.uint8) else Op("abs", (x,), x.dtype)


def minimum(x: Expr, y: Expr) -> Expr:
    """NaN if either is."""
    return and_(x, y) if x.dtype is torch.bool else x if x is y else Op("min", (x, y), x.dtype)


def maximum(x: Expr, y: Expr) -> Expr:
    """The larger one; NaN if either is."""
    return or_(x, y) if x.dtype is torch.bool else x if x is y else Op("max", (x, y), x.dtype)


def at_least(x: Expr, low: Expr) -> Expr:
    """`x` where it equals the bound: zeros keep their sign."""
    return maximum(low, x)


def at_most(x: Expr, high: Expr) -> Expr:
    """The smaller one of x and a bound; NaN in x stays."""
    return minimum(high, x)


def same(name: str) -> Callable[..., Expr]:
    """The constructor of an operator whose result has its arguments' dtype."""

    def build(*args: Expr) -> Expr:
        return Op(name, args, args[0].dtype)

    return build


floordiv, truncdiv = same("floordiv"), same("truncdiv")
remainder, fmod, pow_, atan2 = same("remainder"), same("fmod"), same("pow"), same("atan2")
copysign, nextafter = same("copysign"), same("nextafter")
floor, ceil, trunc, round_ = same("floor"), same("ceil"), same("trunc"), same("round")
sqrt, rsqrt, exp, exp2, expm1 = same("sqrt"), same("rsqrt"), same("exp"), same("exp2"), same("expm1")
log, log2, log10, log1p = same("log"), same("log2"), same("log10"), same("log1p")
tanh, erf, erfc = same("tanh"), same("erf"), same("erfc")
shl, shr = same("shl"), same("shr")


def reciprocal(x: Expr) -> Expr:
    """1 / x."""
    return div(const(1, x.dtype), x)


def square(x: Expr) -> Expr:
    """x * x."""
    return mul(x, x)


def shift_by(x: Expr, value: Number) -> Expr:
    """x + value."""
    return add(x, const(value, x.dtype))


def scale_by(x: Expr, value: Number) -> Expr:
    """x * value."""
    return mul(x, const(value, x.dtype))


# ---------------------------------------------------------------- tests, bits and selection


def _interval(x: Expr) -> tuple[Bound, Bound]:
    if isinstance(x, Const) and x.dtype is torch.int64:
        return x.value, x.value  # type: ignore[return-value]
    return dims.bounds(x.dim) if isinstance(x, Index) else (None, None)


def _decided(name: str, x: Expr, y: Expr) -> bool | None:
    """The outcome of an integer comparison when the ranges of both sides settle it."""
    (xlo, xhi), (ylo, yhi) = _interval(x), _interval(y)
    below = xhi is not None and ylo is not None and (xhi < ylo)
    above = xlo is not None and yhi is not None and (xlo > yhi)
    at_most = xhi is not None and ylo is not None and xhi <= ylo
    at_least = xlo is not None and yhi is not None and xlo >= yhi
    true, false = {
        "lt": (below, at_least), "le": (at_most, above), "gt": (above, at_most), "ge": (at_least, below),
        "eq": (at_most and at_least, below or above), "ne": (below or above, at_most and at_least),
    }[name]
    return True if true else False if false else None


def compare(name: str, x: Expr, y: Expr) -> Expr:
    """eq ne lt le gt ge."""
    known = _decided(name, x, y)
    return Const(known, torch.bool) if known is not None else Op(name, (x, y), torch.bool)


#: Comparisons by name: `eq(x, y)` is `compare("eq", x, y)`.
eq, ne, lt, le, gt, ge = (partial(compare, name) for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def _test(name: str) -> Callable[[Expr], Expr]:
    """Is a float so? False of integers."""
    return lambda x: Op(name, (x,), torch.bool) if x.dtype in FLOATS else Const(False, torch.bool)


isnan, isinf = _test("isnan"), _test("isinf")


def signbit(x: Expr) -> Expr:
    """Is the sign negative, that of -0.0 included?"""
    return Const(False, torch.bool) if x.dtype in (torch.bool, torch.uint8) else Op("signbit", (x,), torch.bool)


def truth(x: Expr) -> Expr:
    """x != 0; NaN counts as true."""
    return cast(x, torch.bool)


def _junction(name: str, decisive: bool) -> Callable[[Expr, Expr], Expr]:
    """Of bits, or of truths: those that decide are folded."""

    def build(x: Expr, y: Expr) -> Expr:
        if x.dtype is torch.bool:
            for a, b in ((x, y), (y, x)):
                if isinstance(a, Const):
                    return a if a.value is decisive else b
        return x if x is y else Op(name, (x, y), x.dtype)

    return build


and_, or_ = _junction("and", False), _junction("or", True)


def xor(x: Expr, y: Expr) -> Expr:
    """Of bits, or of truths."""
    return Op("xor", (x, y), x.dtype)


def not_(x: Expr) -> Expr:
    """Of bits, or of truths."""
    if isinstance(x, Const) and x.dtype is torch.bool:
        return Const(not x.value, torch.bool)
    return x.args[0] if isinstance(x, Op) and x.name == "not" else Op("not", (x,), x.dtype)


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """`x` where the condition holds, else `y`; one of them if that is known."""
    if isinstance(condition, Const):
        return x if condition.value else y
    return x if x is y else Op("where", (condition, x, y), x.dtype)


def within(dim: Dim, low: Dim, high: Dim) -> Expr:
    """low <= dim < high, as an expression."""
    return and_(ge(index(dim), index(low)), lt(index(dim), index(high)))
