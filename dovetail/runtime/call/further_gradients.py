"""Gradients that are differentiated in turn, by a function that is compiled when the first pass needs it.

    x -> f(x), with the gradient g     ->     gradients((x,), (g,)) = torch.autograd.grad(f(x), x, g, create_graph=True)

It is captured like any function of the program's, so it has guards of its own, and gradients of its gradients in turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.errors import GraphBreakError, Unsupported
from dovetail.ir.lazy_module import python_of

Gradients = Callable[[Sequence[Any], Sequence[torch.Tensor]], tuple]


class FurtherGradients:
    """`graph.forward` gives results of its inputs; `alone` compiles a function as one graph, which may raise."""

    def __init__(self, graph: Any, alone: Callable[[Any], Any]) -> None:
        self.made = functools.cache(lambda *which: alone(_function(python_of(graph), *which)))
        self.impossible: set[Any] = set()

    def of(
        self, inputs: Sequence[Any], wanted: tuple[int, ...], tangents: Sequence[torch.Tensor], places: tuple[int, ...]
    ) -> tuple | None:
        """For each wanted input the gradient, where the results at `places` have these; None if PyTorch is to do it."""
        which = places, wanted
        if which in self.impossible:
            return None
        try:
            return self.made(*which)(inputs, tangents)
        except (GraphBreakError, Unsupported):
            self.impossible.add(which)
            return None


def _function(graph: Callable[..., Any], places: tuple[int, ...], wanted: tuple[int, ...]) -> Gradients:
    def gradients(inputs: Sequence[Any], tangents: Sequence[torch.Tensor]) -> tuple:
        # hooks on an input itself are for the pass that is under way
        starts = [t.view_as(t) if isinstance(t, torch.Tensor) else t for t in inputs]
        results = graph(*starts)
        given, sources = [results[k] for k in places], [starts[k] for k in wanted]
        return torch.autograd.grad(given, sources, tangents, create_graph=True, allow_unused=True)

    return gradients
