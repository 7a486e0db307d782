"""float32 elementary functions against float64: bounds of `single.py`, special values, all lane counts."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
import torch

import dovetail
from dovetail.codegen.cpu import Processor
from dovetail.codegen.cpu.vecmath import FUNCTIONS
from dovetail.codegen.cpu.vecmath.single import LARGE_ANGLE, SINGLE
from dovetail.ir.scalar import SCALAR_OPS
from tests.codegen.harness import op, pointwise, run

INF, NAN = float("inf"), float("nan")
SPECIAL = [
    0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0,
    88.7, -87.5, -103.9, 89.0, 127.9, -149.5, 1e10, LARGE_ANGLE, 2 * LARGE_ANGLE, 1e30, -1e35, 0.99999994, 1.0000001,
]  # fmt: skip


def _samples(arity: int) -> list[torch.Tensor]:
    bits = torch.linspace(0, 2**32 - 1, 1 << 16, dtype=torch.float64).to(torch.int64) - 2**31
    whole = bits.to(torch.int32).view(torch.float32)
    special = torch.tensor(SPECIAL)
    parts = [
        whole,
        torch.randn(1 << 14),
        torch.randn(1 << 14) * 4,
        torch.rand(1 << 13) * 2 - 1,
        1 + torch.randn(4096) / 50,
    ]
    first = torch.cat([*parts, special.repeat(len(special))])
    if arity == 1:
        return [first]
    second = torch.cat([p[torch.randperm(len(p))] for p in (whole, *parts[1:4], torch.randint(-9, 9, (4096,)).float())])
    return [first, torch.cat([second, special.repeat_interleave(len(special))])]


def _errors(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distance in units in the last place; infinite where one is NaN or infinite and the other is not."""
    rounded = exact.float()
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    unit = torch.exp2((torch.frexp(exact)[1].double() - 24).clamp(min=-149))
    distance = (got.double() - exact).abs() / unit
    finite = got.isfinite() & rounded.isfinite()
    return torch.where(finite, distance, torch.where(same, 0.0, INF))


def _run(name: str, args: list[torch.Tensor], target: Processor | None = None) -> torch.Tensor:
    out = torch.empty_like(args[0])
    named = {f"x{k}": a for k, a in enumerate(args)}
    assert run(pointwise(lambda *a: op(name, *a), named, out), {**named, "out": out}, target=target) == 0
    return out


WIDE, NARROW = Processor(64, True), Processor(32, False)


@pytest.mark.parametrize(
    ("name", "target"), [(n, WIDE) for n in sorted(SINGLE)] + [(n, NARROW) for n in ("exp", "exp2", "sin", "pow")]
)
def test_error_bound(name, target):
    args = _samples(FUNCTIONS[name])
    exact = SCALAR_OPS[name].evaluate(*[a.double() for a in args])
    errors = _errors(_run(name, args, target), exact)
    worst = int(errors.argmax())
    assert errors[worst] <= SINGLE[name].ulp, [float(a[worst]) for a in args]


ODD = ["expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf"]


@pytest.mark.parametrize("name", ODD)
def test_signed_zeros_stay(name):
    out = _run(name, [torch.tensor([0.0, -0.0] * 20)])
    assert torch.equal(out.signbit(), torch.tensor([False, True] * 20)) and (out == 0).all()


def test_every_function_has_a_float32_version():
    assert set(SINGLE) == set(FUNCTIONS)


def test_scalar_code_uses_the_same_functions():
    x = torch.tensor(0.3)
    out = _run("tanh", [x])
    torch.testing.assert_close(out, x.tanh())


FAR = {
    "elements": lambda x, y: x.sin() * 2 + x.cos(),
    "sums of rows": lambda x, y: (x.sin() * x.cos()).sum(-1),
    "sums of columns": lambda x, y: x.cos().sum(0),
    "one of each row": lambda x, y: (x * y.sin()).exp().sum(-1),
    "of what is reduced": lambda x, y: x * x.amax(-1, keepdim=True).tan(),
    "where": lambda x, y: torch.where(x > 0, x.sin(), y.tan()),
    "double": lambda x, y: x.double().sin().sum(-1),
    "half": lambda x, y: x.bfloat16().sin(),
}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("far", [1.0, 1e5, 3e9])
def test_arguments_that_need_another_function(name, far):
    """Wherever the function stands in a kernel, and wherever its arguments are."""
    torch.manual_seed(0)
    x, y = torch.randn(37, 45), torch.randn(37, 1)
    x[5, 7] *= far
    y[9] *= far
    got, wanted = dovetail.compile(FAR[name], fullgraph=True)(x, y), FAR[name](x, y)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_llvm_runs_no_passes_over_kernels(monkeypatch):
    """It would keep some memory of each run for ever."""
    monkeypatch.setattr(llvm, "create_pass_builder", None)
    x = torch.randn(3, 5)
    fn = lambda x: (x.sin() + x.exp() + x.double().cos()).sum(-1) * 4711.5
    torch.testing.assert_close(dovetail.compile(fn)(x), fn(x))
