"""Which nodes' memory the caller gets to see."""

from __future__ import annotations

import operator

import torch.fx

from dovetail.ir.aten import AtenGraph, output_of
from dovetail.ops.calls.schema import facts

Node = torch.fx.Node


def escaping(aten: AtenGraph) -> set[Node]:
    """Outputs, new values of inputs, and every node whose memory one of those is a view of.

    Two of them must not become one node, nor one of them part of another's memory.
    """
    found: set[Node] = set()
    for node in [*output_of(aten.graph).all_input_nodes, *(node for _, node in aten.mutated)]:
        while node not in found:
            found.add(node)
            if not is_view(node):
                break
            node = node.args[0]  # type: ignore[assignment]
    return found


def is_view(node: Node) -> bool:
    """Does the node's result share memory with its first argument?"""
    return node.op == "call_function" and (node.target is operator.getitem or facts(node.target).view)
