"""Models of many equal layers: a few are compiled, and all compute what they do in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dovetail
from dovetail import building, pipeline
from dovetail.capture.driver import capture
from dovetail.diagnostics.events import Events
from dovetail.ir.loops import Program
from dovetail.ir.spec import verify
from dovetail.options import Options
from dovetail.repeats.seam import results_early
from dovetail.repeats.shapes import shape_of
from tests.fuzz.history import texts

LAYERS, SIZE = 12, 6


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line, self.down = nn.LayerNorm(SIZE), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.scale = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.line(self.norm(x)) * self.scale))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.head, self.time = nn.ModuleList([Layer() for _ in range(LAYERS)]), nn.Linear(SIZE, 3), False

    def forward(self, x: Tensor) -> Any:
        time = x.detach().mean()
        for layer in self.layers:
            x, time = layer(x), time + 0.25
        return self.head(x), x.sum(), *([time] if self.time else ())


@pytest.fixture
def lowered(monkeypatch) -> list[int]:
    """How many nodes there were in each graph that was lowered."""
    found: list[int] = []
    lower, unfold = building.lower, pipeline.Unfolding.__call__

    def checked(self, *programs):
        whole = unfold(self, *programs)
        verify(whole)
        return whole

    def counted(aten, options):
        found.append(len(aten.graph.nodes))
        return lower(aten, options)

    monkeypatch.setattr(building, "lower", counted)
    monkeypatch.setattr(pipeline.Unfolding, "__call__", checked)
    return found


def step(model: Model, call: Callable[[Tensor], Any], chosen: int = 2) -> list[Any]:
    """Results and gradients; `chosen` of the results are differentiated."""
    x = torch.linspace(-1, 1, 4 * SIZE).view(4, SIZE).requires_grad_()
    results = call(x)
    sum(r.square().sum() for r in results[:chosen]).backward()
    found = [*results, x.grad, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return found


def check(model: Model, chosen: int = 2) -> None:
    eager = copy.deepcopy(model)
    found, expected = step(model, dovetail.compile(model, fullgraph=True), chosen), step(eager, eager, chosen)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_a_few_layers_are_compiled(lowered):
    model = Model()
    check(model)
    with torch.no_grad():
        x = torch.randn(4, SIZE)
        torch.testing.assert_close(dovetail.compile(model, fullgraph=True)(x), model(x))
    assert len(lowered) == 6 and max(lowered) < 30 * LAYERS, lowered


def _frozen(model: Model) -> None:
    model.layers[5].line.weight.requires_grad_(False)


def _shared(model: Model) -> None:
    model.layers[6].line = model.layers[5].line


class Normed(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(x))


def test_the_last_layer_gives_the_result(lowered):
    """And keeps it for the backward pass, as the others keep theirs."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Normed() for _ in range(LAYERS)))
    x = torch.randn(4, SIZE)
    expected, got = (call(x) for call in (copy.deepcopy(model), dovetail.compile(model, fullgraph=True)))
    torch.testing.assert_close(got, expected)
    assert len(lowered) == 4, lowered


#: Ways in which turns are not all there is.
DIFFERENT: dict[str, Callable[[Model], Any]] = {
    "a constant": lambda model: setattr(model.layers[5], "scale", 0.25),
    "a parameter without gradients": _frozen,
    "a shared parameter": _shared,
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_layers_that_differ_are_all_compiled(name, lowered):
    model = Model()
    DIFFERENT[name](model)
    check(model)
    assert max(lowered) > 15 * LAYERS, lowered


def test_a_sum_that_no_layer_reads():
    """It is one expression at the end, another one for each number of layers; as operators it is part of the turns."""
    model = Model()
    model.time = True
    check(model)


def test_a_backward_pass_from_some_results(lowered):
    check(Model(), chosen=1)
    first = [*lowered]
    dovetail.reset()
    check(Model(), chosen=1)  # takes what is kept, and makes the rest of it again
    assert max(lowered) == max(first)


def test_gradients_of_gradients():
    model = Model()
    compiled, x = dovetail.compile(model, fullgraph=True), torch.linspace(-1, 1, SIZE).view(1, SIZE).requires_grad_()
    found = []
    for call in (compiled, model):
        (gradient,) = torch.autograd.grad(call(x)[0].square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [x, *model.layers.parameters()]))
    torch.testing.assert_close(*found)


def test_sizes_that_vary(lowered):
    model = Model()
    eager, compiled = copy.deepcopy(model), dovetail.compile(model, fullgraph=True)
    for rows in (4, 7, 9):
        x = torch.randn(rows, SIZE)
        torch.testing.assert_close(compiled(x), eager(x))
    assert len(lowered) == 8 and max(lowered) < 30 * LAYERS, lowered


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_program_is_the_one_of_all_layers(device, monkeypatch):
    """As the stages make it of the whole graph: the same kernels and calls, in the same order."""
    found: list[Program] = []
    gather = building.gather
    monkeypatch.setattr(building, "gather", lambda program, kernels: found.append(program) or gather(program, kernels))
    graph = capture(Model(), (torch.ones(4, SIZE, requires_grad=True),), {}, Options())
    fakes = [given.fake for given in graph.inputs]
    with texts.unloaded(device):
        for shortens in (True, False):
            stages = pipeline.Stages(graph.graph, fakes, Options(), Events(), pipeline.build, shortens)
            assert (stages.shortened(()) if shortens else stages.plan(())) is not None
    kinds = [[shape_of(item).kind for item in results_early(program.items)] for program in found]
    assert len(kinds) == 4 and kinds[:2] == kinds[2:]
