"""Gradients that a compiled step sets to None are gone before its graph runs, as they are in eager mode."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

ALIVE: list[Any] = []  # references to the old gradients
FOUND: list[int] = []  # how many of them were alive at each run of the operator


@torch.library.custom_op("dovetail_tests::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    FOUND.append(sum(ref() is not None for ref in ALIVE))
    if (x != x).any():
        raise ValueError("not a number")
    return x.clone()


@look.register_fake
def _(x):
    return torch.empty_like(x)


look.register_autograd(lambda ctx, g: g)


def step(mod, opt, x):
    opt.zero_grad()
    look(mod(x)).sum().backward()
    opt.step()


def gradients_only(mod, opt, x):
    opt.zero_grad()
    loss = torch.embedding(mod(x), look_up(x)).sum()
    loss.backward()
    return loss.detach()


def look_up(x):
    return x[0, :1].to(torch.int64)


def module_zero_grad(mod, opt, x):
    mod.zero_grad()
    look(mod(x)).sum().backward()
    opt.step()


def make() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    mod = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    return mod, torch.optim.SGD(mod.parameters(), lr=0.1)


def gradients(mod: nn.Module) -> list[torch.Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in mod.parameters()]


@pytest.mark.parametrize("program", (step, module_zero_grad))
@pytest.mark.parametrize("held", (True, False))
def test_old_gradients_are_gone(program, held):
    """Model and optimizer as arguments, and from the function's surroundings."""
    mod, opt = make()
    compiled = dovetail.compile(program) if held else dovetail.compile(lambda mod, _, x: program(mod, opt, x))
    for number in range(4):
        ALIVE[:], FOUND[:] = [weakref.ref(p.grad) for p in mod.parameters() if p.grad is not None], []
        compiled(mod, opt, torch.ones(2, 3))
        assert set(FOUND) == {0}, number
    assert len(ALIVE) == 4


def test_old_gradients_are_gone_without_a_step():
    mod, opt = make()
    seen = []

    def backend(gm, example_inputs):
        def run(*args):
            seen.append(sum(ref() is not None for ref in ALIVE))
            return gm.forward(*args)

        return run

    compiled = dovetail.compile(gradients_only, backend=backend, fullgraph=True)
    for _ in range(3):
        ALIVE[:] = [weakref.ref(p.grad) for p in mod.parameters() if p.grad is not None]
        compiled(mod, opt, torch.zeros(2, 3))
    assert seen == [0, 0, 0] and len(ALIVE) == 4


def test_the_graph_raises_in_a_step():
    (mod, opt), (other, eager) = make(), make()
    compiled = dovetail.compile(step)
    for x in (torch.ones(2, 3), torch.ones(2, 3), torch.full((2, 3), float("nan"))):
        for run, m, o in ((compiled, mod, opt), (step, other, eager)):
            try:
                run(m, o, x)
            except ValueError as error:
                assert "not a number" in str(error)
        torch.testing.assert_close(gradients(mod), gradients(other))
    assert mod[0].weight.grad is None


def counted(mod, opt, x, seen):
    if mod[0].weight.grad is not None:
        seen.append(tuple(mod[0].weight.grad.shape))
    opt.zero_grad()
    try:
        gradients_only(mod, opt, x)
    except IndexError:
        seen.append("refused")
        mod[0].bias.grad = torch.ones(4)


def put_back(mod, opt, x, seen):
    old = mod[0].weight.grad
    opt.zero_grad()
    try:
        gradients_only(mod, opt, x)
    except IndexError:
        mod[0].weight.grad = old


def put_back_from_a_list(mod, opt, x, seen):
    old = [p.grad for p in mod.parameters()]
    opt.zero_grad()
    try:
        gradients_only(mod, opt, x)
    except IndexError:
        for p, g in zip(mod.parameters(), old):
            p.grad = g


def returned(mod, opt, x, seen):
    old = mod[0].weight.grad
    opt.zero_grad()
    gradients_only(mod, opt, x)
    return old


def later(mod, opt, x, seen):
    loss = torch.embedding(mod(x), look_up(x)).sum()
    opt.zero_grad()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("program", (counted, put_back, put_back_from_a_list, returned, later))
def test_the_program_goes_on_as_in_eager_mode(program):
    (mod, opt), (other, eager) = make(), make()
    compiled, seen = dovetail.compile(program), ([], [])
    for k in (0, 1, 0, 7, 1, 7, 0):
        x, results = torch.full((2, 3), float(k)), []
        for run, m, o, found in ((compiled, mod, opt, seen[0]), (program, other, eager, seen[1])):
            try:
                results.append(run(m, o, x, found))
            except IndexError:
                results.append(None)
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(gradients(mod), gradients(other))
    assert seen[0] == seen[1]
