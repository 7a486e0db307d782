"""`flex_attention` by kernels of its own on a CUDA device, against `float64`."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dovetail

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def window(b, h, i, j):
    return (i >= j) & (i - j < 300)


def odd_rows(b, h, i, j):
    """The others see nothing."""
    return (i % 2 == 1) & (i >= j)


def alibi(score, b, h, i, j):
    return score + (h + 1) / 8 * (j - i)


def capped(score, b, h, i, j):
    return 5 * torch.tanh(score / 5)


def inputs(dtype, heads, rows, keys, width):
    torch.manual_seed(0)
    sizes = (2, heads[0], rows, width), (2, heads[1], keys, width), (2, heads[1], keys, width)
    return [torch.randn(n, device="cuda", dtype=dtype, requires_grad=True) for n in sizes]


def results(fn, tensors):
    out = fn(*tensors)
    weights = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=torch.float64).view_as(out).to(out.dtype)
    return out, *torch.autograd.grad(out, tensors, weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [16, 64, 128, 256])
@pytest.mark.parametrize("mask_mod, score_mod", [(None, capped), (window, alibi), (odd_rows, None)])
@pytest.mark.parametrize("heads, rows, keys", [((4, 2), 600, 600), ((2, 2), 256, 1024)])
def test_results(dtype, width, mask_mod, score_mod, heads, rows, keys):
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, rows, keys, "cuda")

    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod, mask, enable_gqa=True)

    tensors = inputs(dtype, heads, rows, keys, width)
    want = results(fn, [t.detach().double().requires_grad_() for t in tensors])
    compiled = dovetail.compile(fn, fullgraph=True)
    for _ in range(3):
        got = results(compiled, tensors)
    for mine, exact in zip(got, want, strict=True):
        error = float((mine.double() - exact).abs().max() / exact.abs().max())
        assert error < (4e-5 if dtype is torch.float32 else 4 * torch.finfo(dtype).eps)
