"""A compiled `optimizer.step` beside eager's: one graph, two compilations, however the rate changes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dovetail
from dovetail.ir.guard import GuardKind

STEPS = 12

OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {}),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "SGD foreach": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "Adam": (torch.optim.Adam, {}),
    "Adam foreach": (torch.optim.Adam, {"foreach": True, "amsgrad": True}),
    "Adam of a tensor rate": (torch.optim.Adam, {"lr": torch.tensor(0.01)}),
    "AdamW": (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    "AdamW foreach": (torch.optim.AdamW, {"foreach": True}),
    "NAdam": (torch.optim.NAdam, {"foreach": True}),
    "Adamax": (torch.optim.Adamax, {}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "RMSprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.1}),
    "Rprop": (torch.optim.Rprop, {}),
    "Adafactor": (torch.optim.Adafactor, {"weight_decay": 0.1}),
    "Adafactor foreach": (torch.optim.Adafactor, {"foreach": True}),
    "ASGD": (torch.optim.ASGD, {"t0": 100}),
    "ASGD foreach": (torch.optim.ASGD, {"t0": 100, "foreach": True}),
    "Adam fused": (torch.optim.Adam, {"fused": True}),
    "AdamW fused": (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
    "SGD fused": (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
    "Adagrad fused": (torch.optim.Adagrad, {"fused": True, "lr_decay": 0.1}),
}


def trainable(cls: type, settings: dict[str, Any]) -> tuple[list[nn.Parameter], Any]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(*sizes)) for sizes in ((3, 5), (7,), (2, 2, 2), (1,))]
    given = {"lr": 0.01, **settings}
    return parameters, cls(parameters, **{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()})


def give_gradients(parameters: list[nn.Parameter], number: int) -> None:
    torch.manual_seed(number)
    for p in parameters:
        p.grad = torch.randn_like(p)


def state_of(optimizer: Any) -> list[Any]:
    return [v for p in optimizer.param_groups[0]["params"] for _, v in sorted(optimizer.state[p].items())]


def follow(
    cls: type, settings: dict[str, Any], scheduler: Callable[[Any], Any] | None = None, **options: Any
) -> Any:
    """Steps of two optimizers, one of them compiled; gives the compiled function."""
    (ours, optimizer), (theirs, eager) = trainable(cls, settings), trainable(cls, settings)
    plans = [scheduler(o) for o in (optimizer, eager)] if scheduler is not None else []
    compiled = dovetail.compile(optimizer.step, **options)
    for number in range(STEPS):
        for parameters, step in ((ours, compiled), (theirs, eager.step)):
            give_gradients(parameters, number)
            assert step() is None
        for plan in plans:
            plan.step()
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(state_of(optimizer), state_of(eager))
    return compiled


def compilations(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_graph_each(name):
    """For all steps: state is made before the first is traced. SGD makes its momentum of the first gradients, and
    Adagrad, which has its state from the beginning, looks at devices in its first step."""
    cls, settings = OPTIMIZERS[name]
    first = cls is torch.optim.SGD and "momentum" in settings or name == "Adagrad fused"
    assert compilations(follow(cls, settings, fullgraph=True)) == 1 + first


@pytest.mark.parametrize("settings", ({}, {"foreach": True}, {"weight_decay": 0.1, "decoupled_weight_decay": True}))
def test_a_decision_by_the_count_of_steps(settings):
    """RAdam computes otherwise from its sixth step on: one compilation more, and no graph ends there."""
    assert compilations(follow(torch.optim.RAdam, settings, fullgraph=True)) == 2


def test_a_decision_by_a_count_from_outside():
    """A count that is set back, as by loading a state, decides anew."""
    (ours, optimizer), (theirs, eager) = trainable(torch.optim.RAdam, {}), trainable(torch.optim.RAdam, {})
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(12):
        for parameters, step, o in ((ours, compiled, optimizer), (theirs, eager.step, eager)):
            give_gradients(parameters, number)
            for p in parameters[:2] if number in (8, 10) else ():
                o.state[p]["step"].fill_(1)
            step()
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(state_of(optimizer), state_of(eager))


class Uncompiled(torch.optim.Adafactor):
    """Takes the code that it has for eager mode, which counts steps by `_foreach_add_(steps, one, alpha=1)`."""

    def step(self, closure=None):
        if torch.compiler.is_compiling():
            raise RuntimeError("not while compiling")
        return super().step(closure)


def test_a_step_that_refuses_to_be_compiled_is_told_otherwise():
    assert compilations(follow(Uncompiled, {"foreach": True}, fullgraph=True)) <= 2


@pytest.mark.filterwarnings(r"error:.*\[uncompiled-graph\]")
@pytest.mark.parametrize("name", ("SGD", "Adam", "Adam of a tensor rate", "AdamW foreach"))
def test_rates_change_without_compiling(name):
    compiled = follow(*OPTIMIZERS[name], lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9), fullgraph=True)
    assert compilations(compiled) <= 2


def test_a_function_that_steps():
    (ours, optimizer), (theirs, eager) = (trainable(*OPTIMIZERS["Adam"]) for _ in range(2))

    @dovetail.compile(fullgraph=True)
    def step(factor):
        for p in ours:
            p.grad.mul_(factor)
        optimizer.step()
        return ours[0].detach() * 1

    for number in range(4):
        for parameters in (ours, theirs):
            give_gradients(parameters, number)
        found = step(0.5)
        for p in theirs:
            p.grad.mul_(0.5)
        eager.step()
        torch.testing.assert_close(ours, theirs)
        assert torch.equal(found, ours[0])
    assert compilations(step) == 1


def test_groups_with_settings_of_their_own():
    def make():
        parameters, _ = trainable(*OPTIMIZERS["SGD"])
        groups = [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:], "weight_decay": 0.2}]
        return parameters, torch.optim.AdamW(groups, lr=0.01)

    (ours, optimizer), (theirs, eager) = make(), make()
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(4):
        for parameters, step in ((ours, compiled), (theirs, eager.step)):
            give_gradients(parameters, number)
            step()
        for o in (optimizer, eager):
            o.param_groups[1]["lr"] *= 0.5
        torch.testing.assert_close(ours, theirs)


def test_a_parameter_without_gradient_is_left_alone():
    (ours, optimizer), (theirs, eager) = (trainable(*OPTIMIZERS["Adam"]) for _ in range(2))
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(5):
        for parameters, step in ((ours, compiled), (theirs, eager.step)):
            give_gradients(parameters, number)
            parameters[number % 2].grad = None
            step()
        torch.testing.assert_close(ours, theirs)
        assert [len(optimizer.state[p]) for p in ours] == [len(eager.state[p]) for p in theirs]


def test_saved_and_loaded():
    """The state that is loaded is other tensors, in groups whose settings have another order: the step that was
    compiled goes on with them."""
    (ours, optimizer), (theirs, eager) = (trainable(*OPTIMIZERS["Adam foreach"]) for _ in range(2))
    compiled = dovetail.compile(optimizer.step, fullgraph=True)
    for number in range(6):
        for parameters, step in ((ours, compiled), (theirs, eager.step)):
            give_gradients(parameters, number)
            step()
        if number % 2:
            optimizer.load_state_dict(optimizer.state_dict())
            kept = eager.state_dict()
            torch.testing.assert_close(optimizer.state_dict(), kept)
            eager.load_state_dict(kept)
        torch.testing.assert_close(ours, theirs)
    assert compilations(compiled) == 1


def test_torch_compile_in_the_same_process_changes_nothing():
    """Once imported, PyTorch's compiler marks methods of the optimizers as not to be compiled."""
    program = """
import torch, dovetail
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
assert torch.optim.Adam._init_group._torchdynamo_disable
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.Adam([parameter], lr=0.5)
parameter.sum().backward()
step = dovetail.compile(optimizer.step, fullgraph=True)
step(), step()
torch.testing.assert_close(parameter.detach(), torch.zeros(3))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300)


def test_what_is_kept_apart_grows_with_the_parameters_not_with_their_pairs():
    """The first step of a momentum changes the state of every parameter."""
    sizes = []
    for count in (4, 16):
        parameters = [nn.Parameter(torch.randn(3)) for _ in range(count)]
        give_gradients(parameters, 0)
        compiled = dovetail.compile(torch.optim.SGD(parameters, lr=0.1, momentum=0.9).step, fullgraph=True)
        compiled()
        guards = compiled._dovetail_dispatcher.entries[0].captured.guards
        sizes.append(sum(len(g.payload) for g in guards if g.kind is GuardKind.DISTINCT))
    assert sizes[1] <= 5 * sizes[0]


def test_marks_that_pytorchs_compiler_puts_on_fused_steps_are_no_users(monkeypatch):
    """Once torch.compile has been used in the process, it keeps itself out of them."""
    module = importlib.import_module("torch.optim.sgd")
    marked = torch.compiler.disable(module._fused_sgd, reason="don't trace into fused optimizer")
    monkeypatch.setattr(module, "_fused_sgd", marked)
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.1, fused=True)
    dovetail.compile(optimizer.step, fullgraph=True)()
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.9))
