"""Checkpoints around what is compiled: eager computes again what the backward pass needs, and stops once it has it."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dovetail


def block(x):
    return (x.sin() @ x.T).exp()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_are_eagers(backend: str, reentrant: bool) -> None:
    compiled = dovetail.compile(block, backend=backend)
    found = []
    for fn in (block, compiled, compiled):
        x = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        y = checkpoint(fn, checkpoint(fn, x, use_reentrant=reentrant) / 10, use_reentrant=reentrant)
        y.sum().backward()
        found.append((y.detach(), x.grad))
    for ours in found[1:]:
        torch.testing.assert_close(ours, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
def test_what_is_computed_again_otherwise_is_an_error(backend: str) -> None:
    """Hooks make two tensors of one that is given twice: what is kept then is other than in the first pass."""
    compiled = dovetail.compile(lambda x, w: torch.sin(x @ w).exp(), backend=backend)
    x = torch.ones(3, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = checkpoint(compiled, x, x, use_reentrant=False)
    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="other tensors"):
        y.sum().backward()


def layer(x, w):
    return torch.sin(x @ w).exp()


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
def test_hooks_around_a_checkpoint(backend: str) -> None:
    w = torch.randn(3, 3, requires_grad=True)
    found = []
    for function in (layer, dovetail.compile(layer, backend=backend)):
        for size in (4, 5, 6):
            x = torch.ones(size, 3, requires_grad=True)
            with torch.autograd.graph.save_on_cpu():
                y = checkpoint(function, x, torch.nn.Parameter(w.detach()), use_reentrant=False)
            y.sum().backward()
            found.append(x.grad)
    for expected, actual in zip(found[:3], found[3:]):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
