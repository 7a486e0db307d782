"""A training step whose parameters, states, hooks and identities change between calls does what eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

pytestmark = pytest.mark.usefixtures("both_ways")


class Net(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.register_buffer("seen", torch.zeros(5, 4))
        if tied:
            self.layers[1].weight = self.layers[0].weight

    def forward(self, x):
        self.seen.add_(1)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x * self.seen.mean()


class Run:
    """A net, its optimizer and a step of them."""

    def __init__(self, tied: bool = False) -> None:
        torch.manual_seed(0)
        self.net = Net(tied)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9, foreach=False)
        self.x = torch.randn(5, 4)

    def step_of(self) -> Callable[[Any], Any]:
        net, optimizer = self.net, self.optimizer

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def weight(self, k: int) -> nn.Parameter:
        return self.net.layers[k].weight  # type: ignore[union-attr, return-value]

    def state(self, k: int) -> dict[str, Any]:
        return self.optimizer.state[self.weight(k)]


def triple(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(3)


def one_state_for_two(run: Run) -> None:
    run.state(2)["momentum_buffer"] = run.state(3)["momentum_buffer"]


def tie(run: Run) -> None:
    run.net.layers[2].weight = run.net.layers[3].weight


def untie(run: Run) -> None:
    run.net.layers[1].weight = nn.Parameter(run.weight(0).detach().clone())


def other_order(run: Run) -> None:
    run.optimizer.param_groups[0]["params"].reverse()


CHANGES: dict[str, Callable[[Run], Any]] = {
    "nothing": lambda run: None,
    "a hook on a parameter": lambda run: run.weight(2).register_hook(lambda g: g * 0),
    "a hook that runs after": lambda run: run.weight(1).register_post_accumulate_grad_hook(triple),
    "a hook put on and taken off": lambda run: run.weight(2).register_hook(lambda g: g * 0).remove(),
    "a frozen parameter": lambda run: run.weight(1).requires_grad_(False),
    "a gradient from elsewhere": lambda run: setattr(run.weight(1), "grad", torch.ones(4, 4)),
    "one state for two parameters": one_state_for_two,
    "another state": lambda run: run.state(2).update(momentum_buffer=torch.ones(4, 4)),
    "a state from an attribute": lambda run: run.state(2).update(extra=1),
    "parameters become one": tie,
    "one becomes two": untie,
    "another order": other_order,
    "an input that the step writes to": lambda run: setattr(run, "x", run.net.seen),
    "an input that is a parameter": lambda run: setattr(run, "x", run.weight(3)),
    "a state dictionary": lambda run: run.optimizer.load_state_dict(copy.deepcopy(run.optimizer.state_dict())),
}


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_between_steps(what: str, tied: bool) -> None:
    eager, ours = Run(tied), Run(tied)
    steps = [eager.step_of(), dovetail.compile(ours.step_of(), backend="eager")]
    for k in range(6):
        if k == 3:
            CHANGES[what](eager)
            CHANGES[what](ours)
        found = [step(run.x) for step, run in zip(steps, (eager, ours), strict=True)]
        torch.testing.assert_close(found[1], found[0])
        for mine, theirs in zip(ours.net.state_dict().values(), eager.net.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, theirs)


def stepped(count: int) -> tuple[Run, Any]:
    """A run, and its compiled step after so many calls."""
    run = Run()
    step = dovetail.compile(run.step_of(), backend="eager")
    for _ in range(count):
        step(run.x)
    return run, step


def test_a_step_is_compiled_twice_and_no_more() -> None:
    """With the states that the first step makes; what the second relies on does not change from call to call."""
    run, step = stepped(2)
    held = step._dovetail_dispatcher.entries[0].below
    taken = held.fast
    for _ in range(3):
        step(run.x)
    assert len(step._dovetail_dispatcher.entries) == 2 and held.fast is taken


def test_what_the_graph_takes_is_not_looked_for_again() -> None:
    run, step = stepped(3)
    held = step._dovetail_dispatcher.entries[0].below
    every = {id(t) for t in run.net.parameters()}
    assert {id(t) for t in held.loaded} >= every


def test_leaves_and_views_that_become_something_else() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [torch.zeros(3) for _ in range(8)]

        def forward(self, x):
            return x + sum(p.is_leaf for p in self.parts) + sum(self.parts)

    net = Holder()
    compiled = dovetail.compile(net, backend="eager")
    for change in (
        lambda: None,
        lambda: net.parts[1].requires_grad_(True),
        lambda: net.parts[2].requires_grad_(True).requires_grad_(False),
        lambda: net.parts[2].mul_(torch.ones(3, requires_grad=True)),
        lambda: net.parts[2].detach_(),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(3)), net(torch.ones(3)))


@pytest.mark.parametrize("gradient", [torch.ones(4, 4).t(), torch.ones(8, 4)[::2], torch.ones(4, 4).to_sparse()])
def test_a_gradient_that_is_only_cleared_may_be_any(gradient: torch.Tensor) -> None:
    run, step = stepped(3)
    run.weight(1).grad = gradient
    step(run.x)
    assert len(step._dovetail_dispatcher.entries) == 2


def test_a_gradient_that_is_looked_at_is_relied_on() -> None:
    weight = nn.Parameter(torch.ones(2, 3))

    def look(x):
        kept = weight.grad
        weight.grad = None
        return x if kept is None else x + kept.stride(0) + kept.sum()

    compiled = dovetail.compile(look, backend="eager")
    for gradient in (None, torch.ones(2, 3), torch.ones(3, 2).t(), torch.full((2, 3), 2.0), None):
        weight.grad = gradient
        expected = look(torch.zeros(1))
        for _ in range(2):
            weight.grad = gradient
            assert torch.equal(compiled(torch.zeros(1)), expected) and weight.grad is None
    assert len(compiled._dovetail_dispatcher.entries) == 3
