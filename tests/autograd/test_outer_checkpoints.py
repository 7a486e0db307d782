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
