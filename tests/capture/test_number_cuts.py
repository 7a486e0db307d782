"""Graphs that need the value of a number that a tensor holds: pieces are compiled, the number is taken out between."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail import pipeline


def _blocks(x, w):
    with torch.no_grad():
        highest = (x * w).abs().max().item()
    y = torch.clamp(x * w, max=highest / 2)
    with torch.no_grad():
        z = y * int(y.argmax())
        y = F.softplus(y, beta=z.mean().item() ** 2 + 1)
    return y * w, highest


def _written(x, w):
    kept = torch.zeros(16)
    kept[3] = x.sum().item()
    y = F.leaky_relu(x * w, kept.sum().item())
    kept.mul_(2)
    return y, kept.view(4, 4), F.threshold(kept, kept.mean().item(), 1.5)


def _random(x, w):
    y = F.dropout(x * w, 0.5, True)
    return F.dropout(torch.full((16,), y.mean().item()) * y, 0.5, True) + torch.rand(16)


PROGRAMS = {
    "filled": lambda x, w: torch.full((3,), x.mean().item() * 2 + 1) + (x * w).sum(),
    "clamped": lambda x, w: torch.clamp((x * w).cos(), max=x.mean().item()).exp(),
    "returned": lambda x, w: (F.elu(x * w, x.max().item()), x.min().item() - 1, int(x.argmax())),
    "sizes, too": lambda x, w: F.elu((x * w)[: int(x.argmax()) % 5 + 1], x.max().item()) * int(x.argmin()),
    "several results": lambda x, w: (lambda m: F.elu(m[0], m[0].max().item()) + m[1])((x * w).view(4, 4).max(0)),
    "blocks": _blocks, "written": _written, "random": _random,
}  # fmt: skip


def _refused(*_):
    raise AssertionError("a graph ran as it was captured")


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_eager(name, monkeypatch):
    monkeypatch.setattr(pipeline, "as_captured", _refused)
    compiled = dovetail.compile(PROGRAMS[name], fullgraph=True)
    for seed in range(3):
        torch.testing.assert_close(_ending(compiled, seed), _ending(PROGRAMS[name], seed), rtol=1e-5, atol=1e-6)


def _ending(function, seed):
    """Results, gradients and the input after a call."""
    torch.manual_seed(seed)
    x, w = torch.randn(16), torch.randn(16, requires_grad=True)
    found = function(x, w)
    tensors = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
    return found, torch.autograd.grad(sum(t.sum() for t in tensors if t.requires_grad), w), x


def test_parameters_are_written_to_on_both_sides_of_a_cut(monkeypatch):
    """Where nothing is recorded a write gives them no history, and what is written to is an input still."""
    monkeypatch.setattr(pipeline, "as_captured", _refused)

    def step(p, x):
        p.mul_(0.5)
        p.add_(F.softplus(p.detach(), x.mean().item()))
        return p

    ours, theirs = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    compiled = dovetail.compile(step, fullgraph=True)
    with torch.no_grad():
        for k in range(3):
            assert compiled(ours, torch.full((2,), 1.0 + k)) is ours
            step(theirs, torch.full((2,), 1.0 + k))
    torch.testing.assert_close(ours, theirs)
