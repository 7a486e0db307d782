"""A region that stores what keeps its own guards from holding is not compiled until it is seen to come again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail


class Scaled:
    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def step(self, x: torch.Tensor) -> torch.Tensor:
        if not self.state:
            self.state["sum"] = torch.zeros_like(x)
            self.state["count"] = torch.zeros(())
        self.state["sum"].add_(x)
        self.state["count"].add_(1)
        return self.state["sum"] / self.state["count"]


def once(compiled: Any) -> list[bool]:
    """For each entry, the newest first, whether it was made for one call."""
    return [entry.once for entry in compiled._dovetail_dispatcher.entries]


def test_the_first_call_makes_what_the_others_use():
    mine, other = Scaled(), Scaled()
    compiled = dovetail.compile(mine.step, fullgraph=True)
    for k in range(4):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(x), other.step(x))
        torch.testing.assert_close(mine.state, other.state)
        assert once(compiled) == ([True] if k == 0 else [False, True])


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_comes_again_is_compiled(fullgraph):
    mine, other = Scaled(), Scaled()
    compiled = dovetail.compile(mine.step, fullgraph=fullgraph)
    for k in range(4):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(x), other.step(x))
        mine.state.clear(), other.state.clear()
        assert once(compiled)[0] is (k == 0 or k == 1 and not fullgraph)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_call_that_raises_was_none(fullgraph):
    mine = Scaled()
    compiled = dovetail.compile(lambda x, y: mine.step(x) @ y, fullgraph=fullgraph)
    with pytest.raises(RuntimeError):
        compiled(torch.ones(3), torch.ones(2))
    mine.state.clear()
    torch.testing.assert_close(compiled(torch.ones(3), torch.ones(3)), torch.tensor(3.0))


@pytest.mark.parametrize("given", ("{}", "{'scale': 2}"))
def test_a_dictionary_of_the_caller_is_another_one_each_time(given):
    def program(x, memo):
        if "seen" not in memo:
            memo["seen"] = x * 2
        return memo["seen"] + len(memo)

    compiled = dovetail.compile(program, fullgraph=True)
    for _ in range(2):
        mine, other = eval(given), eval(given)
        torch.testing.assert_close(compiled(torch.ones(3), mine), program(torch.ones(3), other))
        torch.testing.assert_close(mine, other)
    assert once(compiled) == [False]


def test_parts_after_a_break():
    def program(owner, x):
        y = owner.step(x)
        dovetail.graph_break()
        return y * 2

    mine, other = Scaled(), Scaled()
    compiled = dovetail.compile(program)
    for k in range(3):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(mine, x), program(other, x))


def test_other_backends_see_every_graph():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = dovetail.compile(Scaled().step, backend=backend)
    compiled(torch.ones(3)), compiled(torch.ones(3))
    assert len(graphs) == 2 and once(compiled) == [False, False]


def test_a_call_that_is_certainly_the_only_one_is_not_traced_to_its_end():
    graphs = []

    def program(owner, x):
        y = owner.step(x)
        dovetail.comptime(lambda ctx: graphs.append(1))
        return y * 2

    mine, other = Scaled(), Scaled()
    compiled = dovetail.compile(program)
    for k in range(4):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(mine, x), program(other, x))
        torch.testing.assert_close(mine.state, other.state)
        assert len(graphs) == (k > 0)
    assert once(compiled) == [False, True]
    another = Scaled()
    for _ in range(2):
        compiled(another, torch.ones(3))
    assert once(compiled) == [False, True, True]  # that of all but the first calls fits


def test_nothing_is_compiled_inside_such_a_call():
    inner = dovetail.compile(lambda x: x.sin() * 2)
    mine, x = Scaled(), torch.ones(3)
    compiled = dovetail.compile(lambda x: mine.step(inner(x)))
    compiled(x)
    assert once(compiled) == [True] and once(inner) == []
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    assert once(compiled) == [False, True] and once(inner) == []


@pytest.mark.parametrize("fullgraph", [True, False])
def test_first_steps_of_an_optimizer(fullgraph):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.Adam(model.parameters())

    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    (model, mine), (twin, other) = make(), make()
    compiled = dovetail.compile(step, fullgraph=fullgraph)
    for k in range(3):
        x = torch.full((4, 3), float(k))
        compiled(model, mine, x), step(twin, other, x)
        torch.testing.assert_close(mine.state_dict(), other.state_dict())
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert once(compiled) == [False]
