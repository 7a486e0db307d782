"""Copy what the caller may write to before the backward pass, where PyTorch's own would read something else.

before:  %y = mul(%x, %w)                            of the program's x.clone() * w, whose copy is gone
         %g = mul(%tangent, %x)
after:   %copy = clone(%x);  %y = mul(%x, %w)
         %g = mul(%tangent, %copy)

before:  %sin = sin(%x);  %cos = cos(%x)             both are results, and the derivative of one is the other
         %g = mul(%tangent, %cos)
after:   %sin = sin(%x);  %cos = cos(%x);  %copy = clone(%cos)
         %g = mul(%tangent, %copy)

Passes read inputs and results in the place of what is equal to them. In the backward half that shows: a caller may
write to a tensor that PyTorch's engine does not keep. The cut computes a copy of a result again where that is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import CHECKPOINTED, JointGraph, output_of
from dovetail.ops.aten_nodes import is_view, memory_of

Node = torch.fx.Node


def relied_on(joint: JointGraph) -> Set[int]:
    """Places, among what the caller holds, of memory that the backward pass reads."""
    read = {memory_of(used) for node in _late(joint) for used in node.all_input_nodes}
    return {k for k, node in enumerate(_held(joint)) if node in read}


def protect(joint: JointGraph, relied: Set[int]) -> None:
    """In place. `relied`: see `relied_on`, of the graph as it was recorded."""
    spared = {*relied, *(k for k, _ in (*joint.aten.mutated, *joint.rewritten))}
    held = _held(joint)
    exposed = {node for k, node in enumerate(held) if k not in spared} - {held[k] for k in relied}
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
            first = next(n for n in graph.nodes if n.op != "placeholder")
            with graph.inserting_before(first) if node.op == "placeholder" else graph.inserting_after(node):
                made = graph.call_function(torch.ops.aten.clone.default, (node,))
        made.meta = {"val": node.meta["val"]}
        copies[node] = made
    return copies[node]


def _held(joint: JointGraph) -> list[Any]:
    """Inputs, then the memory of results."""
    inputs = [n for n in joint.aten.graph.nodes if n.op == "placeholder" and n.name not in joint.aten.constants]
    results: Any = output_of(joint.aten.graph).args[0]
    memory = [memory_of(r) if isinstance(r, Node) else None for r in results[: joint.results]]
    return [*inputs[: joint.inputs], *memory]


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
