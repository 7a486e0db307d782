"""Write out what a batch norm in training does to each element, so that a backward pass may do it again.

before:  %n = _native_batch_norm_legit_functional(%x, %w, %b, ...);  %y = getitem(%n, 0)
after:   %n = _native_batch_norm_legit_functional(%x, %w, %b, ...);  %mean = getitem(%n, 1);  %rstd = getitem(%n, 2)
         %scale = mul(%rstd, %w);  %shift = sub(%b, mul(%mean, %scale));  %y = add(mul(%x, %scale), %shift)

The statistics stay with the operator, whose first result nobody reads any more. What follows a norm (an activation, the
image of a convolution) then costs two numbers a channel to keep instead of a tensor of its own, since the norm's input
is kept for its own gradient.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ops.fake import FakeMode
from dovetail.ops.fake.tensor import run

aten = torch.ops.aten
Node = torch.fx.Node
TRAINING = 5  # the argument's position


def expose_norms(graph: AtenGraph) -> None:
    """In place on the graph."""
    norm = aten._native_batch_norm_legit_functional.default
    with torch.no_grad(), FakeMode():
        for node in [n for n in graph.graph.nodes if n.op == "call_function" and n.target is norm]:
            results = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
            if node.args[TRAINING] and results and _alike(node, results[0]):
                made = _Writer(graph.graph, results[0]).normalized(node)
                for result in results:
                    result.replace_all_uses_with(made)


def _alike(norm: Node, result: Node) -> bool:
    """Is the result laid out as the norm's input is, as what is computed element by element will be?"""
    return bool(norm.args[0].meta["val"].stride() == result.meta["val"].stride())  # type: ignore[union-attr]


class _Writer:
    """Adds nodes before a place in a graph."""

    def __init__(self, graph: torch.fx.Graph, place: Node) -> None:
        self.graph, self.place = graph, place

    def normalized(self, norm: Node) -> Node:
        x, weight, bias = norm.args[:3]
        image = x.meta["val"]  # type: ignore[union-attr]
        mean, scale = self.item(norm, 1), self.item(norm, 2)
        if weight is not None:
            scale = self.call(aten.mul.Tensor, scale, weight)
        shift = self.call(aten.mul.Tensor, mean, scale)
        shift = self.call(aten.neg.default, shift) if bias is None else self.call(aten.sub.Tensor, bias, shift)
        broadcast = [1, image.shape[1], *[1] * (image.dim() - 2)]
        wide = self.call(aten.mul.Tensor, x, self.call(aten.view.default, scale, broadcast))
        made = self.call(aten.add.Tensor, wide, self.call(aten.view.default, shift, broadcast))
        if made.meta["val"].dtype != image.dtype:
            made = self.call(aten._to_copy.default, made, dtype=image.dtype)
        return made

    def item(self, node: Node, k: int) -> Node:
        return self.add(operator.getitem, (node, k), {}, node.meta["val"][k])

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        return self.add(target, args, kwargs, run(target, values, kwargs))

    def add(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Node:
        with self.graph.inserting_before(self.place):
            made = self.graph.call_function(target, args, kwargs)
        made.meta["val"] = value
        return made
