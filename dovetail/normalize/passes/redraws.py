"""Let what checkpointed functions draw from the host's generator be drawn again.

before:  %d = native_dropout(%x, 0.5, True)
after:   %s = dovetail.generator_state();  %d = dovetail.native_dropout_again(%s, %x, 0.5, True)

The state is kept for the backward half; the forward half draws as before. Where little is drawn, that is kept.
"""

from __future__ import annotations

import operator

import torch
import torch.fx

from dovetail.ir.aten import CHECKPOINTED, AtenGraph
from dovetail.ir.devices import HOST
from dovetail.normalize.passes.random_numbers import draws_few
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import FakeMode
from dovetail.ops.own.redraw import AGAIN, generator_state

Node = torch.fx.Node


def draw_again(graph: AtenGraph) -> None:
    """In place on the graph."""
    nodes = [n for n in graph.graph.nodes if CHECKPOINTED in n.meta and n.target in AGAIN]
    with torch.no_grad(), FakeMode():
        for node in nodes:
            val = node.meta["val"]
            like = val[0] if isinstance(val, (tuple, list)) else val
            if draws_few(like):
                _keep(node)
            elif like.device == HOST:
                state = GraphWriter(graph.graph, node).call(generator_state)
                del state.meta[CHECKPOINTED]  # it is found once
                node.target, node.args = AGAIN[node.target], (state, *node.args)


def _keep(node: Node) -> None:
    for each in (node, *(user for user in node.users if user.target is operator.getitem)):
        each.meta.pop(CHECKPOINTED, None)
