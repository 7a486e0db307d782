"""`numerics="eager"`: bitwise eager's results on element-wise code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail

FUNCTIONS = {
    "cosines": lambda x, y: torch.cos(torch.cos(x) * y) + y,
    "mixed": lambda x, y: torch.where(x > 0, torch.exp(-x) * y, x.abs().sqrt() / (y * y + 1)),
    "activations": lambda x, y: F.gelu(x) * torch.sigmoid(y) + F.silu(x + y),
    "rational": lambda x, y: x * y + y / (x.abs() + 1) - x,
    "powers": lambda x, y: x.abs().pow(1.7) + torch.log1p(y.abs()) * torch.tanh(x),
    "views": lambda x, y: torch.erf(x.t()[::2]) + y.t()[::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_element_wise_code_is_bitwise_equal(name, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(70, 33).to(dtype), torch.randn(70, 33).to(dtype)
    fn = FUNCTIONS[name]
    with torch.no_grad(), dovetail.config.patch(numerics="eager"):
        assert torch.equal(dovetail.compile(fn, fullgraph=True)(x, y), fn(x, y))
