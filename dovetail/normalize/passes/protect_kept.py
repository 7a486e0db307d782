"""Copy inputs that the caller may write to before the backward pass, where PyTorch's own would read something else.

before:  %y = mul(%x, %w)                            of the program's x.clone() * w, whose copy is gone
         %g = mul(%tangent, %x)
after:   %copy = clone(%x);  %y = mul(%x, %w)
         %g = mul(%tangent, %copy)

Passes read inputs in the place of what was made of them and is equal. In the backward half that shows: a caller may
write to a tensor that PyTorch's engine does not keep. (Of results the cut takes advantage: they are there anyway.)
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import torch
import torch.fx

from dovetail.ir.aten import CHECKPOINTED, JointGraph
from dovetail.ops.aten_nodes import is_view, memory_of

Node = torch.fx.Node


def relied_on(joint: JointGraph) -> Set[int]:
    """Places of inputs that the backward pass reads."""
    read = {memory_of(used) for node in _late(joint) for used in node.all_input_nodes}
    return {k for k, node in enumerate(_inputs(joint)) if node in read}


def protect(joint: JointGraph, relied: Set[int]) -> None:
    """In place. `relied`: see `relied_on`, of the graph as it was recorded."""
    spared = {*relied, *(k for k, _ in (*joint.aten.mutated, *joint.rewritten))}
    exposed = {node for k, node in enumerate(_inputs(joint)) if k not in spared}
    copies: dict[Node, Node] = {}
    for node in [*_late(joint)]:
        for used in node.all_input_nodes:
            if memory_of(used) in exposed and used not in copies:
                _copied(joint.aten.graph, used, copies)
        node._update_args_kwargs(*torch.fx.node.map_arg((node.args, node.kwargs), lambda n: copies.get(n, n)))


def _copied(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """The same of a copy of the memory."""
    if node not in copies:
        if is_view(node):
            whole = _copied(graph, node.args[0], copies)  # type: ignore[arg-type]
            with graph.inserting_after(node):
                made = graph.node_copy(node, lambda n: whole if n is node.args[0] else n)
        else:
            with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
                made = graph.call_function(torch.ops.aten.clone.default, (node,))
        made.meta = {"val": node.meta["val"]}
        copies[node] = made
    return copies[node]


def _inputs(joint: JointGraph) -> list[Node]:
    inputs = [n for n in joint.aten.graph.nodes if n.op == "placeholder" and n.name not in joint.aten.constants]
    return inputs[: joint.inputs]


def _late(joint: JointGraph) -> Iterator[Node]:
    """What runs after the call, or may."""
    tangents, found = {name for name, _ in joint.tangents}, set[Node]()
    for node in joint.aten.graph.nodes:
        if node.name in tangents or any(n in found for n in node.all_input_nodes):
            found.add(node)
        elif not (node in joint.backward or CHECKPOINTED in node.meta):
            continue
        if node.op == "call_function":
            yield node
