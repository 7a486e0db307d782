"""What normalize hands on: a functional graph of ATen operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx


@dataclass(frozen=True)
class AtenGraph:
    """`graph` has placeholders, `call_function` nodes whose targets are `OpOverload`s, and one output.

    Every node that yields tensors has `meta["val"]`: a fake tensor, or a tuple/list of them (then
    `operator.getitem` nodes pick). No node mutates or returns an alias that matters: views are
    nodes like any other. The output's argument is a flat tuple.

    `mutated` pairs a placeholder's position with the node holding its value after the call.
    `aliases[k]` is the position of the placeholder that output k is a view of in eager, with
    output k's own meta giving sizes, strides and offset; absent when it owns its memory.
    `constants` names placeholders, after the caller's inputs, that are tensors known already.
    """

    graph: torch.fx.Graph
    mutated: tuple[tuple[int, torch.fx.Node], ...] = ()
    aliases: Mapping[int, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


class Subprogram:
    """An operator of ours, which may run graphs, as branches or loops do; stands where an OpOverload would.

    `run(callables, *args, **kwargs)` does what the operator does, given a callable for each of `graphs`, which takes
    the graph's inputs and gives its outputs. It returns a list; every tensor in it has memory of its own.
    """

    def __init__(self, name: str, graphs: tuple[AtenGraph, ...], run: Callable[..., list[Any]]) -> None:
        self.graphs, self.run = graphs, run
        self.callables: tuple[Callable[..., Any], ...] = ()
        self.__name__ = self._name = f"dovetail::{name}"
        self._schema = torch._C.parse_schema(f"dovetail::{name}(Tensor[] inputs) -> Tensor[]")
        self.tags: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self.run(self.callables, *args, **kwargs)

    def __str__(self) -> str:
        return self._name.replace("::", ".")


def subprograms(aten: AtenGraph) -> Iterator[Subprogram]:
    """Those that the graph itself calls."""
    for node in aten.graph.nodes:
        if isinstance(node.target, Subprogram):
            yield node.target
