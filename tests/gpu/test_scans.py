"""Scans on a CUDA device against eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CASES = {
    "sum": lambda x: x.cumsum(-1),
    "sum with what surrounds it": lambda x: (x.exp() * 2).cumsum(-1).log1p() + x,
    "sum across memory": lambda x: x[:200].cumsum(0) * 2,
    "sum of long columns": lambda x: x.cumsum(0),
    "sum of truth": lambda x: (x > 0).cumsum(-1),
    "product": lambda x: (1 + x / 1000).cumprod(-1),
    "log": lambda x: x.logcumsumexp(-1),
    "maximum": lambda x: x.cummax(-1),
    "minimum": lambda x: x.round().cummin(-1),
    "normalized": lambda x: F.layer_norm(x.cumsum(-1), x.shape[-1:]),
    "sampled": lambda x: torch.softmax(x, -1).sort(-1, descending=True)[0].cumsum(-1) * 2,
    "bfloat16": lambda x: (x * 2).bfloat16().cummax(-1)[0],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(300, 100), (1000, 4096), (5, 16384), (3, 20000), (1, 77)], ids=str)
def test_calls_in_a_row(name, sizes):
    fn, compiled = CASES[name], dovetail.compile(CASES[name])
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(sizes, device="cuda")
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["sum", "product", "log", "normalized"])
def test_gradients(name):
    fn, compiled = CASES[name], dovetail.compile(CASES[name])
    for _ in range(3):
        x = torch.randn(64, 500, device="cuda", requires_grad=True)
        weights = torch.randn(64, 500, device="cuda")
        got, want = (torch.autograd.grad((f(x) * weights).sum(), x)[0] for f in (compiled, fn))
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-2)


def test_special_values():
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, inf, -inf, nan, 0.0], [-inf, -inf, 1.0, 2.0, 2.0], [2.0, 2.0, nan, 3.0, 1.0]]
    x = torch.tensor(rows, device="cuda")
    for name in ("sum", "log", "maximum", "minimum"):
        got, want = dovetail.compile(CASES[name])(x), CASES[name](x)
        torch.testing.assert_close(got, want, equal_nan=True)
