"""Masks that kernels of a GPU do not read as they are, against eager, which keeps all scores for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIZES = 2, 4, 72, 32


def biases(dtype, kind):
    table = torch.randn(72, 72, 4, device="cuda", dtype=dtype)
    if kind == "one for all":
        return table.permute(2, 0, 1)[None].expand(2, -1, -1, -1)
    if kind == "with hidden columns":
        return table.permute(2, 0, 1)[None].masked_fill(torch.arange(72, device="cuda") > 50, -torch.inf)
    if kind == "with a hidden row":
        hidden = (torch.arange(72, device="cuda") == 5)[:, None]
        return table.permute(2, 0, 1)[None].masked_fill(hidden, -torch.inf)
    return table.permute(2, 0, 1)[None] > -1


@pytest.mark.parametrize("kind", ["one for all", "with hidden columns", "with a hidden row", "truth"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
def test_position_biases(kind, dtype, trained):
    q, k, v = (torch.randn(SIZES, device="cuda", dtype=dtype, requires_grad=trained) for _ in range(3))
    bias = biases(dtype, kind).requires_grad_(trained and kind != "truth")
    given = [t for t in (q, k, v, bias) if t.requires_grad]
    found = []
    for fn in (F.scaled_dot_product_attention, dovetail.compile(F.scaled_dot_product_attention)):
        out = fn(q, k, v, bias)
        found.append((out, *(torch.autograd.grad(out.square().sum(), given) if given else ())))
    error = 2e-2 if dtype is torch.bfloat16 else 2e-4
    for ours, eager in zip(found[1], found[0], strict=True):
        assert not ours.isnan().any()
        assert float((ours - eager).double().norm()) < error * float(eager.double().norm())
