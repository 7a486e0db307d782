"""The scalar operators that an `Op` may name: one row each, with its meaning.

A row gives the operator's arity, how its result dtype follows from its arguments' and a
reference evaluator on tensors, which defines its meaning. All arguments of one Op have one
dtype, `where`'s condition and shift counts apart; lowering inserts `cast`s. Floating point
operators see float32 or float64 only (half types are cast around them), so codegen needs
no half arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """`result`: "same" as the arguments, "bool", or "given" by the Op (casts).

    `domain`: the argument dtypes accepted: "float", "int" (bool excluded), "long" (int64), "bool",
    "bits" (int or bool), "number" (int or float) or "any".
    """

    name: str
    arity: int
    domain: str
    result: str
    evaluate: Callable[..., Any]


def _floor_divide(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="floor")


def _trunc_divide(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="trunc")


def philox(seed: Any, place: Any) -> Any:
    """Word `place` of the stream of random 32-bit words that `seed` names, in [0, 2**32).

    Four words share a block of Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
    the seed is its key, `place // 4` its counter.
    """
    word, block = 0xFFFFFFFF, place >> 2
    first, second = seed & word, (seed >> 32) & word
    a, b = block & word, (block >> 32) & word
    c = d = torch.zeros_like(block)
    for _ in range(PHILOX_ROUNDS):
        left, right = a * PHILOX_FACTORS[0], c * PHILOX_FACTORS[1]
        a, b, c, d = (
            ((right >> 32) & word) ^ b ^ first, right & word, ((left >> 32) & word) ^ d ^ second, left & word,
        )  # fmt: skip
        first, second = (first + PHILOX_STEPS[0]) & word, (second + PHILOX_STEPS[1]) & word
    odd, high = (place & 1) != 0, (place & 2) != 0
    return torch.where(odd, torch.where(high, d, b), torch.where(high, c, a))


PHILOX_ROUNDS = 10
PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)

_ROWS: tuple[ScalarOp, ...] = (
    # arithmetic; integers wrap around
    ScalarOp("add", 2, "number", "same", torch.add),
    ScalarOp("sub", 2, "number", "same", torch.sub),
    ScalarOp("mul", 2, "number", "same", torch.mul),
    ScalarOp("div", 2, "float", "same", torch.div),
    ScalarOp("floordiv", 2, "int", "same", _floor_divide),  # division by zero: 0, checked by lowering
    ScalarOp("truncdiv", 2, "int", "same", _trunc_divide),
    ScalarOp("remainder", 2, "number", "same", torch.remainder),  # sign of the divisor
    ScalarOp("fmod", 2, "number", "same", torch.fmod),  # sign of the dividend
    ScalarOp("neg", 1, "number", "same", torch.neg),
    ScalarOp("abs", 1, "number", "same", torch.abs),
    ScalarOp("min", 2, "number", "same", torch.minimum),  # NaN if either is
    ScalarOp("max", 2, "number", "same", torch.maximum),
    ScalarOp("fma", 3, "float", "same", lambda a, b, c: a * b + c),  # rounded once in codegen
    # rounding
    ScalarOp("floor", 1, "float", "same", torch.floor),
    ScalarOp("ceil", 1, "float", "same", torch.ceil),
    ScalarOp("trunc", 1, "float", "same", torch.trunc),
    ScalarOp("round", 1, "float", "same", torch.round),  # half to even
    # elementary functions; error bounds in codegen/cpu/vecmath
    ScalarOp("sqrt", 1, "float", "same", torch.sqrt),
    ScalarOp("rsqrt", 1, "float", "same", torch.rsqrt),
    ScalarOp("exp", 1, "float", "same", torch.exp),
    ScalarOp("exp2", 1, "float", "same", torch.exp2),
    ScalarOp("expm1", 1, "float", "same", torch.expm1),
    ScalarOp("log", 1, "float", "same", torch.log),
    ScalarOp("log2", 1, "float", "same", torch.log2),
    ScalarOp("log10", 1, "float", "same", torch.log10),
    ScalarOp("log1p", 1, "float", "same", torch.log1p),
    ScalarOp("pow", 2, "float", "same", torch.pow),
    ScalarOp("sin", 1, "float", "same", torch.sin),
    ScalarOp("cos", 1, "float", "same", torch.cos),
    ScalarOp("tan", 1, "float", "same", torch.tan),
    ScalarOp("asin", 1, "float", "same", torch.asin),
    ScalarOp("acos", 1, "float", "same", torch.acos),
    ScalarOp("atan", 1, "float", "same", torch.atan),
    ScalarOp("atan2", 2, "float", "same", torch.atan2),
    ScalarOp("sinh", 1, "float", "same", torch.sinh),
    ScalarOp("cosh", 1, "float", "same", torch.cosh),
    ScalarOp("tanh", 1, "float", "same", torch.tanh),
    ScalarOp("asinh", 1, "float", "same", torch.asinh),
    ScalarOp("acosh", 1, "float", "same", torch.acosh),
    ScalarOp("atanh", 1, "float", "same", torch.atanh),
    ScalarOp("erf", 1, "float", "same", torch.erf),
    ScalarOp("erfc", 1, "float", "same", torch.erfc),
    ScalarOp("copysign", 2, "float", "same", torch.copysign),
    ScalarOp("nextafter", 2, "float", "same", torch.nextafter),
    # tests and comparisons
    ScalarOp("isnan", 1, "float", "bool", torch.isnan),
    ScalarOp("isinf", 1, "float", "bool", torch.isinf),
    ScalarOp("signbit", 1, "number", "bool", torch.signbit),
    ScalarOp("eq", 2, "any", "bool", torch.eq),
    ScalarOp("ne", 2, "any", "bool", torch.ne),
    ScalarOp("lt", 2, "any", "bool", torch.lt),
    ScalarOp("le", 2, "any", "bool", torch.le),
    ScalarOp("gt", 2, "any", "bool", torch.gt),
    ScalarOp("ge", 2, "any", "bool", torch.ge),
    # bits; on bool they are the logical operators
    ScalarOp("and", 2, "bits", "same", torch.bitwise_and),
    ScalarOp("or", 2, "bits", "same", torch.bitwise_or),
    ScalarOp("xor", 2, "bits", "same", torch.bitwise_xor),
    ScalarOp("not", 1, "bits", "same", torch.bitwise_not),
    ScalarOp("shl", 2, "int", "same", torch.bitwise_left_shift),
    ScalarOp("shr", 2, "int", "same", torch.bitwise_right_shift),  # arithmetic for signed types
    # random numbers: (seed, place)
    ScalarOp("philox", 2, "long", "same", philox),
    # selection and conversion
    ScalarOp("where", 3, "any", "same", torch.where),  # (bool, T, T) -> T
    ScalarOp("cast", 1, "any", "given", None),  # type: ignore[arg-type]  # Tensor.to; see evaluate
    ScalarOp("rounded", 1, "any", "given", None),  # type: ignore[arg-type]  # a cast that the program asks for
    ScalarOp("bitcast", 1, "any", "given", None),  # type: ignore[arg-type]  # Tensor.view(dtype)
)

SCALAR_OPS: dict[str, ScalarOp] = {row.name: row for row in _ROWS}

#: Not correctly rounded everywhere (eager's square root, from MKL, is not): implementations differ in last bits.
ELEMENTARY = frozenset(
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
    "acosh atanh erf erfc".split()
)

#: Reduce kinds: the value of an empty reduction, "" where there is none.
REDUCTIONS: dict[str, Any] = {
    "sum": 0, "prod": 1, "any": False, "all": True, "min": "", "max": "", "argmin": "", "argmax": "",
}


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What changes nothing in a reduction of this kind; of `argmin` and `argmax` what is never the first extreme."""
    if kind in ("sum", "prod", "any", "all"):
        kind_of = float if dtype.is_floating_point else bool if dtype is torch.bool else int
        return kind_of(REDUCTIONS[kind])
    largest = kind.endswith("min")
    if dtype.is_floating_point:
        return float("inf") if largest else float("-inf")
    if dtype is torch.bool:
        return largest
    info = torch.iinfo(dtype)
    return info.max if largest else info.min


#: Kinds of scans.
SCANS = frozenset(("sum", "prod", "min", "max", "logsum"))
