"""A part of a captured graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch.fx
from torch.fx import Node


def piece_of(
    root: torch.fx.GraphModule, inputs: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Node]
) -> torch.fx.GraphModule:
    """Of `inputs` it computes `outputs`, by copies of `nodes`."""
    made, copies = torch.fx.Graph(), dict[Node, Node]()
    for node in inputs:
        copies[node] = made.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = made.node_copy(node, copies.__getitem__)
    made.output(tuple(copies[node] for node in outputs))
    return torch.fx.GraphModule(root, made)


class PieceGraph:
    """One that is made when something asks for it. `places`: the numbers of its inputs, nodes and outputs in `whole`,
    which has them in `module`."""

    def __init__(self, whole: Any, places: Sequence[Sequence[int]], meta: Mapping[str, Any]) -> None:
        self.whole, self.places, self.meta = whole, places, dict(meta)

    @cached_property
    def module(self) -> torch.fx.GraphModule:
        root = self.whole if isinstance(self.whole, torch.fx.GraphModule) else self.whole.module
        every = list(root.graph.nodes)
        return piece_of(root, *([every[k] for k in numbers] for numbers in self.places))

    def forward(self, *inputs: Any) -> Any:
        return self.module.forward(*inputs)
