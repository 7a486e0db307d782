"""Scalar operators of the loop IR as expressions of Triton's language.

Where Triton's own function is an approximation (division, square root, exponential), the correctly rounded one or
CUDA's device library is used: results are as accurate as eager's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from dovetail.codegen.gpu import types

_JOINED = "\n@triton.jit\ndef {}(a, b):\n    return a {} b\n"
_EXTREME = """
@triton.jit
def {0}(a, b):
    if tl.constexpr(a.dtype.is_floating() and a.dtype.primitive_bitwidth < 64):
        return tl.{1}(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif tl.constexpr(a.dtype.is_floating()):
        return tl.where(a != a, a, tl.where(b != b, b, tl.{1}(a, b)))
    else:
        return tl.where(a {2} b, a, b)
"""
_PLACE = """
@triton.jit
def {0}(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    first = tl.where(same, i < j, (a {1} b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)
"""
#: Functions that a kernel may call, put into its text where it does.
HELPERS: dict[str, str] = {
    "_floordiv": """
@triton.jit
def _floordiv(a, b):
    quotient = a // tl.where(b == 0, 1, b)
    exact = quotient * b == a
    return tl.where(b == 0, 0, tl.where(((a < 0) != (b < 0)) & ~exact, quotient - 1, quotient))
""",
    "_truncdiv": """
@triton.jit
def _truncdiv(a, b):
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))
""",
    "_modulo": """
@triton.jit
def _modulo(a, b):
    rest = a % tl.where(b == 0, 1, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_remainder": """
@triton.jit
def _remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_philox": """
@triton.jit
def _philox(seed, place):
    block = place >> 2
    a, b = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    c, d = a * 0, a * 0
    key, other = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        left, right = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, c = (right >> 32).to(tl.uint32) ^ b ^ key, (left >> 32).to(tl.uint32) ^ d ^ other
        b, d = right.to(tl.uint32), left.to(tl.uint32)
        key, other = key + 0x9E3779B9, other + 0xBB67AE85
    even, odd = tl.where((place & 2) == 0, a, c), tl.where((place & 2) == 0, b, d)
    return tl.where((place & 1) == 0, even, odd).to(tl.int64)
""",
    "_erf": """
@triton.jit
def _erf(x):
    size, square = tl.abs(x), x * x
    p = tl.fma(square, tl.full((), 8.483494457323104e-05, tl.float32), tl.full((), -0.0008213091641664505, tl.float32))
    p = tl.fma(p, square, tl.full((), 0.005213488824665546, tl.float32))
    p = tl.fma(p, square, tl.full((), -0.026868773624300957, tl.float32))
    p = tl.fma(p, square, tl.full((), 0.11284004896879196, tl.float32))
    p = tl.fma(p, square, tl.full((), -0.37612664699554443, tl.float32))
    p = tl.fma(p, square, tl.full((), 0.12837915122509003, tl.float32))
    q = tl.fma(size, tl.full((), 1.6425845387857407e-05, tl.float32), tl.full((), -0.0004680210549850017, tl.float32))
    q = tl.fma(q, size, tl.full((), 0.0052647641859948635, tl.float32))
    q = tl.fma(q, size, tl.full((), -0.034303076565265656, tl.float32))
    q = tl.fma(q, size, tl.full((), 0.1532936990261078, tl.float32))
    q = tl.fma(q, size, tl.full((), 0.9163130521774292, tl.float32))
    q = tl.fma(q, size, tl.full((), 0.6282998323440552, tl.float32))
    far = 1.0 - tl.exp2(tl.fma(q, -size, -size))
    return tl.where(size >= 1.002959966659546, libdevice.copysign(far, x), tl.fma(p, x, x))
""",
    **{name: _JOINED.format(name, sign) for name, sign in (("_sum", "+"), ("_prod", "*"))},
    **{name: _EXTREME.format(name, *of) for name, of in (("_min", ("minimum", "<")), ("_max", ("maximum", ">")))},
    "_logsum": """
@triton.jit
def _logsum(a, b):
    high = tl.where((a > b) | (a != a), a, b)
    low = tl.where((a > b) | (a != a), b, a)
    same = (high == low) & (high - low != 0)
    return tl.where(same, high, high + libdevice.log1p(libdevice.exp(low - high)))
""",
    "_squares": """
@triton.jit
def _squares(mean, squares, value, count):
    away = value - mean
    mean += away * (1.0 / count)
    return mean, squares + away * (value - mean)
""",
    "_exponentials": """
@triton.jit
def _exponentials(most, total, value):
    less = libdevice.exp(-tl.abs(value - most))
    less = tl.where(value == most, 1.0, less)
    return tl.where(value > most, total * less + 1.0, total + less)
""",
    **{name: _JOINED.format(name, sign) for name, sign in (("_any", "|"), ("_all", "&"))},
    **{name: _PLACE.format(name, sign) for name, sign in (("_argmin", "<"), ("_argmax", ">"))},
}

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip

#: Operators with one form for every type that they take.
_CALLS = {
    "neg": "-{}", "abs": "tl.abs({})", "fma": "tl.fma({}, {}, {})", "where": "tl.where({}, {}, {})",
    "floor": "tl.floor({})", "ceil": "tl.ceil({})", "div": "tl.div_rn({}, {})", "sqrt": "tl.sqrt_rn({})",
    "min": "_min({}, {})", "max": "_max({}, {})", "isnan": "({} != {})", "floordiv": "_floordiv({}, {})",
    "truncdiv": "_truncdiv({}, {})", "trunc": "libdevice.trunc({})", "round": "libdevice.rint({})",
    "rsqrt": "libdevice.rsqrt({})", "fmod": "libdevice.fmod({}, {})", "philox": "_philox({}, {})",
}  # fmt: skip

_DOUBLE = {"div": "{} / {}", "sqrt": "tl.sqrt({})"}  # already rounded correctly

_DEVICE = frozenset(
    "exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc copysign nextafter".split()
)


def helpers_of(text: str) -> list[str]:
    """The names in HELPERS that a text calls."""
    mentioned = set(re.findall(r"\b_\w+", text))
    return [name for name in HELPERS if name in mentioned]


def operator(name: str, dtype: torch.dtype, operand: torch.dtype, args: list[str]) -> str:
    """The operator on arguments of type `operand` (`where`: of its branches), giving `dtype`."""
    if name in _INFIX:
        return f"({args[0]} {_INFIX[name]} {args[1]})"
    text = _FORMS[name](dtype, operand, args) if name in _FORMS else None
    if text is not None:
        return text
    if name in _DEVICE:
        return f"libdevice.{name}({', '.join(args)})"
    form = _DOUBLE.get(name) if operand is torch.float64 else None
    return (form or _CALLS[name]).format(*args)


def _not(dtype: torch.dtype, operand: torch.dtype, args: list[str]) -> str:
    return f"({args[0]} == 0)" if dtype is torch.bool else f"~{args[0]}"


def _remainder(dtype: torch.dtype, operand: torch.dtype, args: list[str]) -> str:
    return f"{'_remainder' if operand in types.FLOATS else '_modulo'}({args[0]}, {args[1]})"


def _fmod(dtype: torch.dtype, operand: torch.dtype, args: list[str]) -> str | None:
    return None if operand in types.FLOATS else f"({args[0]} % {args[1]})"


def _erf(dtype: torch.dtype, operand: torch.dtype, args: list[str]) -> str | None:
    """CUDA's constants, in its polynomials; which of the two comes last, not at each step."""
    return f"_erf({args[0]})" if operand is torch.float32 else None


def _shift(name: str, dtype: torch.dtype, args: list[str]) -> str:
    """By the width of the type or more, as PyTorch: 0, or the sign."""
    bits = 8 * dtype.itemsize
    value, count = args
    outside = f"(({count} < 0) | ({count} >= {bits}))"
    if name == "shl":
        return f"tl.where({outside}, 0, {value} << tl.where({outside}, 0, {count}))"
    return f"({value} >> tl.where({outside}, {bits - 1}, {count}))"


def _signbit(dtype: torch.dtype, value: str) -> str:
    if dtype not in types.FLOATS:
        return f"({value} < 0)"
    return f"({value}.to(tl.int{8 * dtype.itemsize}, bitcast=True) < 0)"


def cast(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """`Tensor.to(target)`."""
    if source is target:
        return value
    if target is torch.bool:
        return f"({value} != 0)"
    return f"{value}.to({types.name(target)})"


#: Operators whose text depends on the types: (result's, operand's, arguments) → text; None: as a call.
_FORMS: dict[str, Callable[[torch.dtype, torch.dtype, list[str]], str | None]] = {
    "cast": lambda dtype, operand, args: cast(args[0], operand, dtype),
    "rounded": lambda dtype, operand, args: cast(args[0], operand, dtype),
    "bitcast": lambda dtype, operand, args: f"{args[0]}.to({types.name(dtype)}, bitcast=True)",
    "not": _not,
    "remainder": _remainder,
    "fmod": _fmod,
    "isinf": lambda dtype, operand, args: f"(tl.abs({args[0]}) == float('inf'))",
    "isnan": lambda dtype, operand, args: f"({args[0]} != {args[0]})",
    "shl": lambda dtype, operand, args: _shift("shl", operand, args),
    "shr": lambda dtype, operand, args: _shift("shr", operand, args),
    "signbit": lambda dtype, operand, args: _signbit(operand, args[0]),
    "erf": _erf,
}
