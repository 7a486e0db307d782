"""Adding operators to a graph, with the fake results that they would have."""

from __future__ import annotations

import operator
from typing import Any

import torch.fx

from dovetail.ir.aten import CHECKPOINTED, KEPT
from dovetail.ops.fake.tensor import run

Node = torch.fx.Node


class GraphWriter:
    """Adds nodes before a place in a graph. Inside `on_fakes`."""

    def __init__(self, graph: torch.fx.Graph, place: Node) -> None:
        self.graph, self.place = graph, place

    def item(self, node: Node, k: int) -> Node:
        return self.add(operator.getitem, (node, k), {}, node.meta["val"][k])

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        return self.add(target, args, kwargs, run(target, values, kwargs))

    def add(self, target: Any, args: tuple, kwargs: dict[str, Any], value: Any) -> Node:
        with self.graph.inserting_before(self.place):
            made = self.graph.call_function(target, args, kwargs)
        made.meta["val"] = value
        made.meta |= {name: self.place.meta[name] for name in (CHECKPOINTED, KEPT) if name in self.place.meta}
        return made
