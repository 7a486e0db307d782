"""Averages of a model's parameters, kept inside compiled steps and beside them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import dovetail


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)).double()


def averaged(compiler):
    """Stochastic weight averaging as its documents have it."""
    model = made()
    mean, moving = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = SWALR(optimizer, 0.05, anneal_epochs=3)

    @compiler
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        mean.update_parameters(model)
        moving.update_parameters(model)

    for _ in range(5):
        step(torch.randn(8, 4).double())
        schedule.step()
    update_bn([torch.randn(8, 4).double()], mean)
    return model, mean, moving


def updated(compiler):
    """Only the update is compiled."""
    model = made()
    mean = AveragedModel(model)
    update = compiler(mean.update_parameters)
    for _ in range(4):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        update(model)
    return model, mean


def by_hand(compiler):
    model = made()
    mean = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())

    @compiler
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(mean.parameters(), model.parameters()):
                p.lerp_(q, 0.1)
            for p, q in zip(mean.buffers(), model.buffers()):
                p.copy_(q)

    for _ in range(4):
        step(torch.randn(8, 4).double())
    return model, mean


@pytest.mark.parametrize("backend", ["dovetail", "aot_eager"])
@pytest.mark.parametrize("program", [averaged, updated, by_hand], ids=lambda p: p.__name__)
def test_as_eager_does(program, backend):
    want = [dict(m.state_dict()) for m in program(lambda fn: fn)]
    got = [dict(m.state_dict()) for m in program(lambda fn: dovetail.compile(fn, backend=backend))]
    torch.testing.assert_close(got, want)
