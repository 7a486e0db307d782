"""Training steps in which the CPU computes too: its part comes first, the GPU's is a CUDA graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dovetail
from dovetail.runtime.gpu.graphs import Recorder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def replays(monkeypatch):
    """How often a recording was replayed."""
    counted, replay = [], Recorder.replay

    def counting(self, *args):
        counted.append(1)
        return replay(self, *args)

    monkeypatch.setattr(Recorder, "replay", counting)
    return counted


def trained(optimizer, steps, compiler=lambda fn: fn, scheduled=False):
    """Parameters and states after some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    opt = optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)

    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    run = compiler(step)
    for k in range(steps):
        x, y = torch.randn(16, 32, device="cuda"), torch.randint(0, 8, (16,), device="cuda")
        loss = run(x, y)
        if scheduled and k % 3 == 2:
            schedule.step()
    return copy.deepcopy([loss, *model.parameters(), *(v for s in opt.state.values() for v in s.values())])


OPTIMIZERS = {
    "Adam": torch.optim.Adam,
    "AdamW, one by one": lambda p: torch.optim.AdamW(p, foreach=False),
    "NAdam": torch.optim.NAdam,
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, lr=1e-2),
}


@pytest.mark.skipif(dovetail.config.check_kernels, reason="kernels that check themselves are not recorded")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("scheduled", [False, True], ids=["constant rate", "scheduled"])
def test_steps_counted_on_the_cpu(name, scheduled, replays):
    make = OPTIMIZERS[name]
    ours, eager = trained(make, 9, dovetail.compile, scheduled), trained(make, 9, scheduled=scheduled)
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert replays
