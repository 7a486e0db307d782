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
    "numbers": lambda x, y: ((x + 0.1667) * (0.3 - y), x - 0.1667, x * 0.3 / 0.7, x.clamp(-0.1, 0.3), F.elu(x, 0.3)),
    "factors": lambda x, y: (x.add(y, alpha=0.3), x.sub(y, alpha=0.3), x.lerp(y, 0.3), torch.addcmul(x, y, y, value=3)),
    "rests": lambda x, y: (x % 0.1667, x.fmod(0.1667), F.hardshrink(x, 0.1667), x + torch.tensor(0.1667)),
    "views": lambda x, y: torch.erf(x.t()[::2]) + y.t()[::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_element_wise_code_is_bitwise_equal(name, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(70, 33).to(dtype), torch.randn(70, 33).to(dtype)
    fn = FUNCTIONS[name]
    with torch.no_grad(), dovetail.config.patch(numerics="eager"):
        torch.testing.assert_close(dovetail.compile(fn, fullgraph=True)(x, y), fn(x, y), rtol=0, atol=0)
