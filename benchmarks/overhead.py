"""What a call costs when the work is nothing: `x + 1` on 4x8 floats, and the guards of models of many modules."""

from __future__ import annotations

import importlib
from statistics import median

import torch

from . import measure
from .contenders import CONTENDERS, EAGER
from .registry import build


def call_overhead(contenders: list[str], rounds: int = 41) -> dict[str, dict[str, float]]:
    """For each contender: `us` a call, and `ratio` to eager's (the median of the rounds' ratios)."""
    fn, inputs = build("add-one")
    names = [EAGER.name, *contenders]
    programs = [CONTENDERS[name].compile(fn) for name in names]
    with torch.no_grad():
        times = measure.interleaved([lambda p=program: p(*inputs) for program in programs], rounds, slice_seconds=0.01)
    ratios = [median(t / base for t, base in zip(times[i], times[0])) for i in range(len(names))]
    return {name: {"us": median(times[i]) * 1e6, "ratio": ratios[i]} for i, name in enumerate(names)}


class _Block(torch.nn.Module):
    """A module as users write them: a submodule with parameters, a number, a method."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = torch.nn.Linear(4, 4), 0.5

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(self.inner(x)).relu()


MODULES = (10, 100, 1000)


def guard_cost(modules: int, rounds: int = 41) -> dict[str, float]:
    """Of a model of so many modules, compiled by a backend that computes nothing: `us` a call, and the `guards`."""
    model = torch.nn.Sequential(*(_Block() for _ in range((modules - 1) // 2)))
    x = torch.ones(2, 4)
    dovetail = importlib.import_module("dovetail")
    compiled = dovetail.compile(model, backend=lambda graph, given: lambda *inputs: (x,))
    with torch.no_grad():
        (times,) = measure.interleaved([lambda: compiled(x)], rounds, slice_seconds=0.01)
        found = dovetail.explain(model, backend="eager")(x)
    return {"us": median(times) * 1e6, "guards": len(found.out_guards)}
