"""A relu's derivative looks at its result. Its argument says the same.

before:  %relu = relu(%x);  %g = threshold_backward(%tangent, %relu, 0)
after:   %g = threshold_backward(%tangent, %x, 0)

Where the argument is made of one large tensor that the backward half reads anyway, as a norm of a convolution's result
is, it costs no memory traffic, and the result need not be read.
"""

from __future__ import annotations

import torch
import torch.fx

from dovetail.autograd.cut import large, runs_again

aten = torch.ops.aten
Node = torch.fx.Node


def look_at_arguments(nodes: list[Node], needed: set[Node], backward_nodes: set[Node]) -> None:
    """In place on the joint graph."""
    backward = [n for n in nodes if n in backward_nodes and n in needed]
    masks = {n: argument for n in backward if (argument := argument_of(n)) is not None}
    if not masks:
        return
    others = {n for node in backward if node not in masks for n in node.all_input_nodes}
    anyway = _made_of(others - backward_nodes, backward_nodes)
    for node, argument in masks.items():
        sources = large(_made_of({argument}, backward_nodes), argument)
        if len(sources) == 1 and anyway.issuperset(sources):
            node.update_arg(1, argument)


def argument_of(node: Node) -> Node | None:
    """What the relu was given whose derivative the node computes."""
    if node.target is not aten.threshold_backward.default:
        return None
    _, result, threshold = node.args
    if not isinstance(result, Node) or result.target is not aten.relu.default:
        return None
    argument = result.args[0]
    whole = isinstance(threshold, (int, float)) and threshold >= 0
    return argument if whole and isinstance(argument, Node) else None


def _made_of(values: set[Node], backward_nodes: set[Node]) -> set[Node]:
    """What is read where these are computed in the backward half."""
    sources, seen, stack = set(), set(values), list(values)
    while stack:
        node = stack.pop()
        if runs_again(node, backward_nodes):
            stack += [n for n in node.all_input_nodes if n not in seen]
            seen.update(node.all_input_nodes)
        else:
            sources.add(node)
    return sources
