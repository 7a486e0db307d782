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
@pytest.mark.parametrize("width", [16, 64, 80, 128, 256])
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("mask_mod, score_mod", [(None, capped), (window, alibi), (odd_rows, None)])
def test_sizes_that_vary(dtype, mask_mod, score_mod):
    """One program for all of them; a mask is made for each, as callers do."""

    def fn(q, k, v, mask):
        return flex_attention(q, k, v, score_mod, mask, enable_gqa=True)

    compiled = dovetail.compile(fn, fullgraph=True, dynamic=True)
    for rows, keys in (600, 600), (257, 257), (1024, 1024), (100, 900), (600, 600):
        mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, rows, keys, "cuda")
        tensors = inputs(dtype, (4, 2), rows, keys, 64)
        exact = results(lambda *t, mask=mask: fn(*t, mask), [t.detach().double().requires_grad_() for t in tensors])
        for mine, wanted in zip(results(lambda *t, mask=mask: compiled(*t, mask), tensors), exact, strict=True):
            error = float((mine.double() - wanted).abs().max() / wanted.abs().max())
            assert error < (4e-5 if dtype is torch.float32 else 4 * torch.finfo(dtype).eps)


def looked_up(t):
    return lambda score, b, h, i, j: torch.tanh(score * t["number"]) + t["ranks"][t["rank"][i, j], h] * t["rows"][b, j]


def relative(t):
    return lambda score, b, h, i, j: score + t["relative"][h, i - j + 1100] + t["heads"][h] * (j - i) / 100


def documents(t):
    return lambda b, h, i, j: (t["documents"][b, i] == t["documents"][b, j]) & (i >= j)


def lengths(t):
    """Heads differ, too."""
    return lambda b, h, i, j: (j < t["lengths"][b]) & (i - j < 200 * (h + 1))


def tables(dtype):
    sizes = {"number": (), "ranks": (8, 4), "rows": (2, 1100), "relative": (4, 2200), "heads": (4,)}
    found = {n: torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for n, s in sizes.items()}
    found["documents"] = (torch.rand(2, 1100, device="cuda") < 0.01).cumsum(1)
    found["lengths"] = torch.tensor([700, 1100], device="cuda")
    found["rank"] = torch.randint(0, 8, (1100, 1100), device="cuda")
    return found


def dense(q, k, v, score_mod, mask_mod):
    """All places at once; rows that see none are 0."""
    b, h, i, j = (torch.arange(n, device="cuda").view(-1, *[1] * d) for n, d in zip((2, 4, 1100, 1100), (3, 2, 1, 0)))
    scores = score_mod(q @ k.repeat_interleave(2, 1).mT / q.shape[3] ** 0.5, b, h, i, j)
    seen = mask_mod(b, h, i, j).expand(scores.shape)
    some = seen.any(-1, keepdim=True)
    return torch.where(seen | ~some, scores, -torch.inf).softmax(-1).where(some, 0) @ v.repeat_interleave(2, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("score_mod", [looked_up, relative])
@pytest.mark.parametrize("mask_mod", [documents, lengths])
def test_tables(dtype, width, score_mod, mask_mod):
    """Their gradients, and blocks that they hide."""
    read, tensors = tables(torch.float32), inputs(dtype, (4, 2), 1100, 1100, width)
    learned = [name for name, t in read.items() if t.requires_grad]
    exact = read | {name: read[name].detach().double().requires_grad_() for name in learned}
    wide = [t.detach().double().requires_grad_() for t in tensors]

    def fused(q, k, v, t):
        mask = create_block_mask(mask_mod(t), 2, 4, 1100, 1100, "cuda")
        return flex_attention(q, k, v, score_mod(t), mask, enable_gqa=True)

    def outcome(fn, given, read):
        out = fn(*given, read)
        weights = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=torch.float64).view_as(out).to(out.dtype)
        leaves = [*given, *(read[name] for name in learned)]
        return out, *torch.autograd.grad(out, leaves, weights, allow_unused=True)

    want = outcome(lambda q, k, v, t: dense(q, k, v, score_mod(t), mask_mod(t)), wide, exact)
    got = outcome(dovetail.compile(fused, fullgraph=True), tensors, read)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine is None) is (theirs is None)
        if mine is not None:
            error = float((mine.double() - theirs).abs().max() / theirs.abs().max())
            assert error < (1e-4 if dtype is torch.float32 else 4e-2)


HIDDEN = torch.rand(2, 1, 256, 256) < 0.3


def filled(q, k, v, hidden):
    weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
    return weights @ v


def causal(q, k, v, hidden):
    follows = torch.ones(256, 256, dtype=torch.bool, device="cuda").triu(1)
    scores = (torch.matmul(q, k.mT) * 0.1).masked_fill(follows, torch.finfo(q.dtype).min)
    return torch.matmul(torch.nn.functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype), v)


def added(q, k, v, hidden):
    """Rows of which all is hidden by a number, too."""
    bias = torch.zeros(hidden.shape, dtype=q.dtype, device="cuda").masked_fill(hidden, torch.finfo(q.dtype).min)
    return (torch.einsum("bhid,bhjd->bhij", q, k) * 0.1 + bias).softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("program", [filled, causal, added])
@pytest.mark.parametrize("trained", [False, True])
def test_written_out(dtype, program, trained):
    tensors = [t.detach().requires_grad_(trained) for t in inputs(dtype, (4, 4), 256, 256, 64)]
    hidden = HIDDEN.cuda()
    hidden[0, :, 7] = program is added

    def outcome(fn, given):
        out = fn(*given, hidden)
        weights = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=torch.float64).view_as(out).to(out.dtype)
        return out, *(torch.autograd.grad(out, given, weights) if trained else ())

    got, eager = outcome(dovetail.compile(program, fullgraph=True), tensors), outcome(program, tensors)
    exact = outcome(program, [t.detach().double().requires_grad_(trained) for t in tensors])
    for mine, theirs, right in zip(got, eager, exact, strict=True):
        errors = [float((t.double() - right).abs().max() / right.abs().max()) for t in (mine, theirs)]
        assert errors[0] < 2 * errors[1] + 2 * torch.finfo(dtype).eps and mine.stride() == theirs.stride()


def test_dropout_of_what_is_written_out():
    """As much is left as is to be, and other places in each call."""
    program = lambda q, k, v: torch.nn.functional.dropout((q @ k.mT).softmax(-1), 0.25) @ v
    q, k, _ = inputs(torch.bfloat16, (4, 4), 256, 256, 64)
    ones = torch.ones_like(k)
    compiled = dovetail.compile(program, fullgraph=True)
    first, second = compiled(q, k, ones), compiled(q, k, ones)
    assert abs(float(first.float().mean()) - 1) < 0.02 and not torch.equal(first, second)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(first.sum(), (q, k)))
