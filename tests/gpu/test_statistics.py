"""Running statistics that a recorded backward pass updates, since a checkpointed function runs again in it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
    pytest.mark.filterwarnings(r"error:.*\[uncompiled-graph\]"),
]


@pytest.mark.parametrize("reentrant", [False, True])
def test_statistics_are_eagers_after_every_step(reentrant):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda()
    theirs = copy.deepcopy(ours)

    def loss(net, x):
        return checkpoint(net, x, use_reentrant=reentrant).square().mean()

    compiled = dovetail.compile(loss)
    for _ in range(8):
        x = torch.randn(4, 3, 16, 16, device="cuda")
        compiled(ours, x.clone().requires_grad_()).backward()
        loss(theirs, x.clone().requires_grad_()).backward()
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()), rtol=1e-3, atol=1e-3)
