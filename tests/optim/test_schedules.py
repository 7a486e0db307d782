"""Learning rates that change, closures, and what surrounds a compiled step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as plans

import dovetail
from tests.optim.test_steps import compilations, follow, give_gradients, trainable

PLANS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: plans.LambdaLR(o, lambda n: 0.95**n),
    "MultiplicativeLR": lambda o: plans.MultiplicativeLR(o, lambda n: 0.9),
    "StepLR": lambda o: plans.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: plans.MultiStepLR(o, [2, 5], 0.3),
    "ConstantLR": lambda o: plans.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: plans.LinearLR(o, 0.1, 1.0, 6),
    "ExponentialLR": lambda o: plans.ExponentialLR(o, 0.8),
    "SequentialLR": lambda o: plans.SequentialLR(o, [plans.ConstantLR(o, 0.1), plans.ExponentialLR(o, 0.9)], [3]),
    "PolynomialLR": lambda o: plans.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR": lambda o: plans.CosineAnnealingLR(o, 6),
    "ChainedScheduler": lambda o: plans.ChainedScheduler([plans.ConstantLR(o, 0.1), plans.ExponentialLR(o, 0.9)]),
    "CyclicLR": lambda o: plans.CyclicLR(o, 0.001, 0.1, 3, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: plans.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: plans.OneCycleLR(o, 0.1, total_steps=14),
}


@pytest.mark.parametrize("name", PLANS)
def test_schedules(name):
    """Momentum cycles along with the rate in the last one. Numbers become inputs at the second compilation."""
    compiled = follow(torch.optim.AdamW, {}, PLANS[name], fullgraph=True)
    assert compilations(compiled) <= 3


def test_a_rate_that_follows_the_loss():
    (ours, optimizer), (theirs, eager) = trainable(torch.optim.SGD, {}), trainable(torch.optim.SGD, {})
    plan, other = (plans.ReduceLROnPlateau(o, factor=0.5, patience=0) for o in (optimizer, eager))
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(6):
        for parameters, step, p in ((ours, compiled, plan), (theirs, eager.step, other)):
            give_gradients(parameters, number)
            step()
            p.step(1.0 + number)
        torch.testing.assert_close(ours, theirs)
    assert compilations(compiled) <= 2


def quadratic(parameters: list[torch.Tensor], optimizer: Any, calls: list[int]) -> Callable[[], torch.Tensor]:
    def closure():
        optimizer.zero_grad()
        loss = sum(((p - 1) ** 2).sum() for p in parameters)
        loss.backward()
        calls.append(1)
        return loss

    return closure


@pytest.mark.parametrize("cls", (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS))
def test_closures(cls):
    (ours, optimizer), (theirs, eager) = trainable(cls, {}), trainable(cls, {})
    compiled = dovetail.compile(optimizer.step)
    calls: list[list[int]] = [[], []]
    for _ in range(4):
        got = compiled(quadratic(ours, optimizer, calls[0]))
        want = eager.step(quadratic(theirs, eager, calls[1]))
        torch.testing.assert_close(torch.as_tensor(got).detach(), torch.as_tensor(want).detach())
        torch.testing.assert_close(ours, theirs)
    assert calls[0] == calls[1]


def test_step_hooks_run():
    seen: list[str] = []
    parameters, optimizer = trainable(torch.optim.Adam, {})
    compiled = dovetail.compile(optimizer.step)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    for number in range(3):
        give_gradients(parameters, number)
        compiled()
    assert seen == ["before", "after"] * 3


def test_what_is_added_to_an_optimizer():
    def grow(parameters, optimizer):
        fresh = torch.nn.Parameter(torch.ones(5))
        optimizer.add_param_group({"params": [fresh], "lr": 0.5})
        parameters.append(fresh)

    (ours, optimizer), (theirs, eager) = trainable(torch.optim.Adam, {}), trainable(torch.optim.Adam, {})
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(5):
        for parameters, step, o in ((ours, compiled, optimizer), (theirs, eager.step, eager)):
            if number == 2:
                grow(parameters, o)
            give_gradients(parameters, number)
            step()
        torch.testing.assert_close(ours, theirs)


def test_optimizers_go_when_nobody_has_them():
    def step(optimizer):
        optimizer.step()

    compiled = dovetail.compile(step, fullgraph=True)
    parameters, optimizer = trainable(torch.optim.Adam, {})
    give_gradients(parameters, 0)
    compiled(optimizer)
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None
