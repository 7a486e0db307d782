"""Every pointwise row against eager, over dtypes and special values."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.ops.checking import check

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 0.1, -0.3, 7.5, -7.5, 20.0, 21.0, -30.0, 1e-3, -1e-3, 1e-30, 1e30,
    -1e30, math.inf, -math.inf, math.nan, 2.5, 3.5, -1.5, 6.0, 1.0000001, 0.9999999, 88.0, -100.0,
]


def special(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype)
    if dtype is torch.bool:
        return torch.tensor([True, False, True, True, False])
    numbers = [0, 1, 2, 3, 5, 7, 63, 100, 127] + ([] if dtype is torch.uint8 else [-1, -2, -5, -7, -100, -128])
    return torch.tensor(numbers, dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x = special(dtype)
    return x[:, None], x[None, :]


UNARY = [
    torch.sqrt, torch.rsqrt, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10,
    torch.log1p, torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan, torch.sinh, torch.cosh,
    torch.tanh, torch.asinh, torch.acosh, torch.atanh, torch.erf, torch.erfc, torch.floor, torch.ceil,
    torch.trunc, torch.round, torch.frac, torch.reciprocal, torch.square, torch.neg, torch.abs, torch.positive,
    torch.sign, torch.sgn, torch.deg2rad, torch.rad2deg, torch.sinc, torch.special.entr, torch.isnan,
    torch.isinf, torch.isfinite, torch.isposinf, torch.isneginf, torch.signbit, torch.logical_not,
    torch.nan_to_num, torch.logit, torch.sigmoid, F.silu, F.gelu, F.relu, F.relu6, F.leaky_relu, F.elu, F.celu,
    F.selu, F.softplus, F.mish, F.hardtanh, F.hardsigmoid, F.hardswish, F.hardshrink, F.softshrink,
    F.logsigmoid, F.softsign, F.tanhshrink,
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("fn", UNARY, ids=lambda f: f.__name__)
def test_unary_functions_of_floats(fn, dtype):
    x = special(dtype)
    if fn is F.gelu:
        x = x[x.isfinite()]  # eager's gelu(inf) is NaN or inf, depending on which library serves the dtype
    check(fn, x, loops=True)


INTEGER_UNARY = [
    torch.sqrt, torch.exp, torch.sin, torch.erf, torch.sigmoid, torch.floor, torch.ceil, torch.trunc, torch.round,
    torch.square, torch.neg, torch.abs, torch.positive, torch.sign, torch.reciprocal, torch.isnan, torch.isinf,
    torch.isfinite, torch.isposinf, torch.signbit, torch.logical_not, torch.nan_to_num, torch.bitwise_not, torch.relu,
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("fn", INTEGER_UNARY, ids=lambda f: f.__name__)
def test_unary_functions_of_integers(fn, dtype):
    check(fn, special(dtype), loops=True)


BOOL_UNARY = [torch.exp, torch.sigmoid, torch.logical_not, torch.bitwise_not, torch.sign, torch.isnan, torch.signbit]


@pytest.mark.parametrize("fn", BOOL_UNARY, ids=lambda f: f.__name__)
def test_unary_functions_of_bools(fn):
    check(fn, special(torch.bool), loops=True)


WITH_PARAMETERS = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "leaky": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 1.7), "celu": lambda x: F.celu(x, 0.6), "softplus": lambda x: F.softplus(x, 2, 5),
    "hardtanh": lambda x: F.hardtanh(x, -0.4, 0.7), "hardshrink": lambda x: F.hardshrink(x, 0.2),
    "softshrink": lambda x: F.softshrink(x, 0.2), "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "logit_eps": lambda x: torch.logit(x, 1e-3), "round_2": lambda x: torch.round(x, decimals=2),
    "round_-1": lambda x: torch.round(x, decimals=-1), "nan_to_num": lambda x: torch.nan_to_num(x, 1.5, 7.0, -7.0),
    "clamp": lambda x: torch.clamp(x, -1, 2.5), "clamp_min": lambda x: torch.clamp(x, min=0.5),
    "clamp_max": lambda x: torch.clamp(x, max=0.5), "add_alpha": lambda x: torch.add(x, x, alpha=0.3),
    "sub_alpha": lambda x: torch.sub(x, 2, alpha=3), "rsub": lambda x: 1 - x,
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25], dtype=x.dtype)), "glu": lambda x: F.glu(x, 0),
}
WITH_PARAMETERS |= {f"pow_{p}": lambda x, p=p: x**p for p in (0.5, -0.5, 1, 2, 3, -1, -2, 0, 2.5, 10)}
WITH_PARAMETERS |= {f"scalar_base_{p}": lambda x, p=p: p**x for p in (1, 2, 0.5)}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_functions_with_parameters(name, dtype):
    x = special(dtype)
    if name.startswith("scalar_base") or name == "pow_10":
        x = x.clamp(-4, 4)
    if name.startswith("round") and dtype in (torch.float16, torch.bfloat16):
        x = x.clamp(-100, 100)
    check(WITH_PARAMETERS[name], x, loops=name != "dropout" or None)


BINARY = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.remainder,
    torch.fmod, torch.floor_divide, torch.atan2, torch.copysign, torch.hypot, torch.logaddexp, torch.logaddexp2,
    torch.xlogy, torch.heaviside, torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge, torch.logical_and,
    torch.logical_or, torch.logical_xor,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fn", BINARY, ids=lambda f: f.__name__)
def test_binary_functions_of_floats(fn, dtype):
    x, y = pairs(dtype)
    if fn is torch.floor_divide:  # torch.fmod, which the evaluator uses, gives NaN for quotients beyond float32
        x = x.clamp(-1e4, 1e4)
    if dtype is torch.bfloat16 and fn in (torch.remainder, torch.fmod, torch.floor_divide):
        x, y = (v.clamp(-8, 8) for v in (x, y))
    check(fn, x, y, loops=True)


INTEGER_BINARY = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.eq, torch.lt, torch.bitwise_and,
    torch.bitwise_or, torch.bitwise_xor, torch.logical_and, torch.logical_xor, torch.atan2, torch.copysign,
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("fn", INTEGER_BINARY, ids=lambda f: f.__name__)
def test_binary_functions_of_integers(fn, dtype):
    check(fn, *pairs(dtype), loops=True)


@pytest.mark.parametrize("fn", [torch.bitwise_left_shift, torch.bitwise_right_shift], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts(fn, dtype):
    check(fn, special(dtype)[:, None], torch.tensor([0, 1, 3, 7], dtype=dtype), loops=True)


BOOL_BINARY = [torch.add, torch.mul, torch.maximum, torch.eq, torch.bitwise_xor]


@pytest.mark.parametrize("fn", BOOL_BINARY, ids=lambda f: f.__name__)
def test_binary_functions_of_bools(fn):
    check(fn, *pairs(torch.bool), loops=True)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("divisor", [3, 0.1, -2.5, 1])
def test_division_by_a_number(mode, dtype, divisor):
    x = special(dtype).clamp(0, 100) if dtype is torch.uint8 else special(dtype).clamp(-100, 100)
    check(lambda t: torch.div(t, divisor, rounding_mode=mode), x)


@pytest.mark.parametrize("divisor", [3, -3, 1, 7])
def test_integer_division_by_a_number_needs_no_library(divisor):
    x = torch.arange(-20, 20)
    check(lambda t: (t // divisor, t % divisor, torch.fmod(t, divisor), t.div(divisor, rounding_mode="trunc")), x,
          loops=True)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 10])
def test_integer_powers_wrap_around(exponent):
    check(lambda t: t**exponent, torch.tensor([-3, 0, 2, 7, 2**40]), loops=True)


DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("left", DTYPES, ids=str)
@pytest.mark.parametrize("right", DTYPES, ids=str)
def test_mixed_dtypes_promote(left, right):
    x, y = torch.tensor([0, 1, 1]).to(left), torch.tensor([1, 0, 1]).to(right)
    scalar = torch.tensor(1).to(right)
    check(lambda a, b, c: (a + b, a * c, a == b, a < c, torch.where(a.bool(), a, b), a / b), x, y, scalar, loops=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", [2, 0.1, True])
def test_numbers_promote(dtype, number):
    check(lambda a: (a + number, a * number, a == number, a > number), torch.tensor([0, 1, 2, 3]).to(dtype), loops=True)


@pytest.mark.parametrize("source", [*DTYPES, torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("target", [*DTYPES, torch.float16, torch.int8, torch.int32], ids=str)
def test_conversions(source, target):
    x = torch.tensor([0.0, 1.0, 2.5, 3.99, 100.3]).to(source)
    check(lambda a: a.to(target, copy=True), x, loops=True)


def test_ternary_functions():
    x, y, z = torch.randn(3, 4), torch.randn(4), torch.randn(3, 1)
    check(lambda a, b, c: (
        torch.addcmul(a, b, c, value=0.3), torch.addcdiv(a, b, c, value=2), torch.lerp(a, b, 0.3), torch.lerp(a, b, c),
        torch.clamp(a, c, b), torch.where(a > 0, b, c), a.masked_fill(b > 0, -1.5), torch.where(a > 0, 1.0, c),
    ), x, y, z, loops=True)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 1, 3)], ids=str)
def test_shapes_without_or_with_one_element(shape):
    check(lambda a: (a + 1, a.exp() * a, a[None] + a, a > 0), torch.randn(shape), loops=True)


LAYOUTS = {
    "transposed": lambda: torch.randn(4, 5).t(), "expanded": lambda: torch.randn(4, 1).expand(4, 5),
    "strided": lambda: torch.randn(8, 10)[::2, ::3], "offset": lambda: torch.randn(6, 7)[2:, 1:],
    "channels_last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "overlapping": lambda: torch.randn(10).as_strided((4, 5), (1, 1)),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_eagers(name):
    x = LAYOUTS[name]()
    check(lambda a: (a * 2, a + a.clone(), a.sigmoid()), x)
