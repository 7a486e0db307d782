"""The negative log likelihood as a kernel of our own, with its reductions, weights and ignored classes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail

SHAPES = ((5,), (6, 5), (3, 5, 4, 2), (200, 1000))


def data(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    classes = shape[0] if len(shape) == 1 else shape[1]
    return x, torch.randint(classes, shape[:0] if len(shape) == 1 else (shape[0], *shape[2:])), classes


def both(fn, x, target):
    """Results and gradients of eager and compiled."""
    found = []
    for run in (fn, dovetail.compile(fn, fullgraph=True)):
        own = x.detach().clone().requires_grad_()
        loss = run(own, target)
        loss.backward(torch.linspace(0.5, 2, loss.numel()).reshape(loss.shape).to(loss.dtype))
        found.append((loss.detach(), own.grad))
    return found


@pytest.mark.parametrize("loss", (F.nll_loss, F.cross_entropy))
@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions(shape, reduction, loss):
    for dtype in (torch.float32, torch.float64):
        x, target, classes = data(shape, dtype)
        for weight in (None, torch.rand(classes, dtype=dtype)):
            for ignored in (-100, 2):
                some = target.masked_fill(torch.rand(target.shape) < 0.2, ignored)
                given = {"weight": weight, "reduction": reduction, "ignore_index": ignored}
                want, got = both(lambda x, t, given=given: loss(x, t, **given), x, some)
                torch.testing.assert_close(got, want, equal_nan=True)


def test_all_ignored():
    x, target, _ = data((6, 5), torch.float32)
    want, got = both(F.cross_entropy, x, torch.full_like(target, -100))
    torch.testing.assert_close(got, want, equal_nan=True)


def test_bfloat16_errs_no_more_than_eager():
    x, target, _ = data((200, 1000), torch.bfloat16)
    (want, wanted), (got, found) = both(F.cross_entropy, x, target)
    exact = x.detach().double().requires_grad_()
    loss = F.cross_entropy(exact, target)
    loss.backward(torch.tensor(0.5, dtype=torch.float64))
    assert (got - loss).abs() <= 2 * (want - loss).abs() + 2**-8 * loss.abs()
    assert (found - exact.grad).abs().max() <= 2 * (wanted - exact.grad).abs().max()


@pytest.mark.parametrize("wrong", (-1, 5))
@pytest.mark.parametrize("trained", (True, False))
def test_targets_out_of_bounds(wrong, trained):
    x, target, _ = data((6, 5), torch.float32)
    target[3] = wrong
    with pytest.raises(IndexError, match="out of bounds"):
        dovetail.compile(F.cross_entropy)(x if trained else x.detach(), target)


def test_large_numbers_keep_their_differences():
    """The largest of a row is taken off before the logarithm of the sum is."""
    x = (torch.randn(8, 100) + 1e4).requires_grad_()
    want, got = both(F.cross_entropy, x, torch.randint(100, (8,)))
    torch.testing.assert_close(got, want)
