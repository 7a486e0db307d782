"""Where a checkpointed function is computed again, it writes again to what it writes to, as under PyTorch's engine.

    checkpoint(norm, x)     forward:   %new = batch_norm(%x, %mean)[3]      becomes the value of %mean
                            backward:  %new = batch_norm(%x, %mean)[3]      again, from what %mean is by then

The running statistics of a batch norm are updated twice a step. Only what gradients do not depend on is written twice
here: otherwise they would be computed from other values than those that the call has given.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch.fx

from dovetail.autograd.second_forward import unrepeatable
from dovetail.ir.aten import CHECKPOINTED, WRITTEN, JointGraph, NotDifferentiable

Node = torch.fx.Node
#: In the meta of a node of a checkpointed function that writes: its place in the joint graph.
PLACE = "place"


def written_again(joint: JointGraph, inputs: list[Node], backward: Set[Node]) -> dict[Node, Node]:
    """Inputs → the nodes that compute what the backward half writes to them.

    Raises NotDifferentiable where that is not known to be what PyTorch's engine would write.
    """
    marked = [k for k, node in enumerate(inputs) if WRITTEN in node.meta]
    if not marked:
        return {}
    for place, node in enumerate(joint.aten.graph.nodes):
        if CHECKPOINTED in node.meta:
            node.meta[PLACE] = place
    changed = dict(joint.aten.mutated)
    written = {inputs[k]: changed[k] for k in marked if k in changed}
    found = {node: value for node, value in written.items() if _is_alone(node, value, backward)}
    if len(found) < len(marked) or unrepeatable(joint):
        raise NotDifferentiable("a checkpointed function writes to what it is given, and others read that")
    reached = _reached(n for node in backward for n in node.all_input_nodes)
    if not all(_is_reached(value, reached) for value in found.values()):
        raise NotDifferentiable("a checkpointed function writes behind the last value that gradients are computed from")
    return found


def still_written(mutated: Iterable[tuple[int, Node]], graph: torch.fx.Graph, env: Mapping[Node, Node]) -> Any:
    """Those of a backward graph's writes that its part `graph` makes: of functions that it computes again."""
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    output = next(iter(reversed(graph.nodes)))
    live, stack = set[Node](), list(output.all_input_nodes)
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack += node.all_input_nodes
    reached = _reached(live)
    for k, node in mutated:
        if _is_reached(node, reached):
            yield names.index(_placeholder(node.graph, k).name), env[node]


def _placeholder(graph: torch.fx.Graph, k: int) -> Node:
    return [n for n in graph.nodes if n.op == "placeholder"][k]


def _is_alone(before: Node, after: Node, backward: Set[Node]) -> bool:
    """Is all that is computed from the input's old value part of the function that writes to it?"""
    number, stack, seen = before.meta[WRITTEN], [before], set[Node]()
    while stack:
        node = stack.pop()
        for user in node.users:
            if user in backward or user.op == "output" or user.meta.get(CHECKPOINTED) != number:
                return False
            if user not in seen and not _is_maker(user):
                stack.append(user)
            seen.add(user)
    return after.meta.get(CHECKPOINTED) == number


def _is_maker(node: Node) -> bool:
    """Does it give several results? Which of them depend on what, `second_forward` knows."""
    return isinstance(node.meta.get("val"), (tuple, list))


def _reached(read: Iterable[Node]) -> dict[int, int]:
    """Checkpointed functions → the last place in each of something that is read."""
    found: dict[int, int] = {}
    for node in read:
        if CHECKPOINTED in node.meta and PLACE in node.meta:
            number = node.meta[CHECKPOINTED]
            found[number] = max(found.get(number, 0), _made_at(node))
    return found


def _is_reached(node: Node, reached: Mapping[int, int]) -> bool:
    """A second run ends with the last value that gradients are computed from."""
    return _made_at(node) <= reached.get(node.meta[CHECKPOINTED], -1)


def _made_at(node: Node) -> int:
    maker: Any = node.args[0] if node.target is operator.getitem else node
    return maker.meta[PLACE]
