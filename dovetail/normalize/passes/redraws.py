"""Let what checkpointed functions draw from the host's generator be drawn again.

before:  %d = native_dropout(%x, 0.5, True)
after:   %s = dovetail.generator_state();  %d = dovetail.native_dropout_again(%s, %x, 0.5, True)

The state is kept for the backward half; the forward half draws as before. Of other devices' generators what is drawn is
kept, where it is little.
"""

from __future__ import annotations

from dovetail.ir.aten import CHECKPOINTED, KEPT, AtenGraph
from dovetail.ir.devices import HOST
from dovetail.normalize.passes.random_numbers import draws_few
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import on_fakes
from dovetail.ops.own.redraw import AGAIN, generator_state


def draw_again(graph: AtenGraph) -> None:
    """In place on a joint graph, which is to be divided: only the forward half takes them from the generator."""
    nodes = [n for n in graph.graph.nodes if CHECKPOINTED in n.meta and KEPT not in n.meta and n.target in AGAIN]
    with on_fakes():
        for node in nodes:
            val = node.meta["val"]
            like = val[0] if isinstance(val, (tuple, list)) else val
            if like.device == HOST:
                state = GraphWriter(graph.graph, node).call(generator_state)
                del state.meta[CHECKPOINTED]  # it is found once
                node.target, node.args = AGAIN[node.target], (state, *node.args)
            elif draws_few(like):
                node.meta[KEPT] = True
