"""Roundings that a program asks for are done, whatever follows in the same kernel."""

from __future__ import annotations

import pytest
import torch

import dovetail

CASTS = {
    "there and back": lambda x, d: x.to(d).float() * 2,
    "of what was computed": lambda x, d: (x * 3).to(d).to(torch.float64) + 1,
    "into a tensor": lambda x, d: torch.empty(x.shape, dtype=d).copy_(x * 1.1).float(),
    "in place": lambda x, d: torch.zeros(x.shape, dtype=d).add_(1).copy_(x).double().sin(),
    "before a sum": lambda x, d: (x * 1.7).to(d).float().sum(),
    "straight through": lambda x, d: x + (x.to(d).float() - x).detach(),
    "by way of the other": lambda x, d: x.half().to(d).float(),
}


@pytest.mark.parametrize("name", CASTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_casts_round(name, dtype):
    torch.manual_seed(0)
    fn, x = CASTS[name], torch.randn(1000)
    torch.testing.assert_close(dovetail.compile(fn)(x, dtype), fn(x, dtype), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_round(dtype):
    x = torch.randn(1000, requires_grad=True)
    fn = lambda x: (x.to(dtype).float() * 1.1 + x).sum()
    expected = torch.autograd.grad(fn(x), x)
    torch.testing.assert_close(torch.autograd.grad(dovetail.compile(fn)(x), x), expected, rtol=1e-6, atol=1e-6)
