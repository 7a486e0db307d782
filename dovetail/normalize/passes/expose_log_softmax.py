"""Write out a logarithm of softmax, so that a backward pass may do it again from its input.

before:  %y = _log_softmax(%x, 1, False)
after:   %m = amax(%x, [1], True);  %d = sub(%x, %m);  %l = log(sum(exp(%d), [1], True));  %y = sub(%d, %l)

What is kept is then %x, which a product has left in memory, with two numbers a row, instead of another tensor as large.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import on_fakes

aten = torch.ops.aten
Node = torch.fx.Node
HALVES = (torch.float16, torch.bfloat16)


def expose_logs(graph: AtenGraph) -> None:
    """In place on the graph."""
    with on_fakes():
        for node in [n for n in graph.graph.nodes if n.target is aten._log_softmax.default]:
            backward = any(user.target is aten._log_softmax_backward_data.default for user in node.users)
            x, made = node.args[0].meta["val"], node.meta["val"]
            if backward and made.dim() and made.numel() and x.stride() == made.stride():
                node.replace_all_uses_with(_written_out(GraphWriter(graph.graph, node), *node.args[:2]))


def _written_out(write: GraphWriter, x: Any, dim: Any) -> Node:
    dtype = x.meta["val"].dtype
    wide = write.call(aten._to_copy.default, x, dtype=torch.float32) if dtype in HALVES else x
    largest = write.call(aten.amax.default, wide, [dim], True)
    shifted = write.call(aten.sub.Tensor, wide, largest)
    total = write.call(aten.sum.dim_IntList, write.call(aten.exp.default, shifted), [dim], True)
    made = write.call(aten.sub.Tensor, shifted, write.call(aten.log.default, total))
    return write.call(aten._to_copy.default, made, dtype=dtype) if dtype in HALVES else made
