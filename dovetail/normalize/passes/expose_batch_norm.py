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

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import on_fakes

aten = torch.ops.aten
Node = torch.fx.Node
TRAINING = 5  # the argument's position


def expose_norms(graph: AtenGraph) -> None:
    """In place on the graph."""
    norm = aten._native_batch_norm_legit_functional.default
    with on_fakes():
        for node in [n for n in graph.graph.nodes if n.op == "call_function" and n.target is norm]:
            results = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
            if node.args[TRAINING] and results and _alike(node, results[0]):
                made = _normalized(GraphWriter(graph.graph, results[0]), node)
                for result in results:
                    result.replace_all_uses_with(made)


def _alike(norm: Node, result: Node) -> bool:
    """Is the result laid out as the norm's input is, as what is computed element by element will be?"""
    return bool(norm.args[0].meta["val"].stride() == result.meta["val"].stride())  # type: ignore[union-attr]


def _normalized(write: GraphWriter, norm: Node) -> Node:
    x, weight, bias = norm.args[:3]
    image = x.meta["val"]  # type: ignore[union-attr]
    mean, scale = write.item(norm, 1), write.item(norm, 2)
    if weight is not None:
        scale = write.call(aten.mul.Tensor, scale, weight)
    shift = write.call(aten.mul.Tensor, mean, scale)
    shift = write.call(aten.neg.default, shift) if bias is None else write.call(aten.sub.Tensor, bias, shift)
    broadcast = [1, -1, *[1] * (image.dim() - 2)]
    wide = write.call(aten.mul.Tensor, x, write.call(aten.view.default, scale, broadcast))
    made = write.call(aten.add.Tensor, wide, write.call(aten.view.default, shift, broadcast))
    if made.meta["val"].dtype != image.dtype:
        made = write.call(aten._to_copy.default, made, dtype=image.dtype)
    return made
