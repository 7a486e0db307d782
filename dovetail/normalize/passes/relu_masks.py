"""A relu's derivative looks at its result. Its argument says the same.

before:  %relu = relu(%x);  %g = threshold_backward(%tangent, %relu, 0)
after:   %g = threshold_backward(%tangent, %x, 0)

Where the argument is made of one large tensor that something reads later anyway, as gradients of a norm read what it
was given, the mask is part of what reads that; the result need not be read, nor the masked gradient be stored.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import traits
from dovetail.ops.aten_nodes import is_cheap, large, library_readers, relu_argument

aten = torch.ops.aten
Node = torch.fx.Node


def look_at_arguments(graph: AtenGraph) -> None:
    """In place on the graph."""
    nodes = list(graph.graph.nodes)
    masks = {n: argument for n in nodes if (argument := relu_argument(n)) is not None}
    masks = {n: argument for n, argument in masks.items() if traits(n.meta["val"].device).keeps_operands}
    if not masks:
        return
    places = {node: k for k, node in enumerate(nodes)}
    last = _last_reads(nodes, places, set(masks))
    for node, argument in masks.items():
        sources = large(_made_of(argument), argument)
        if len(sources) == 1 and last.get(sources[0], -1) > places[node]:
            node.update_arg(1, argument)


def _last_reads(nodes: list[Node], places: dict[Node, int], masks: set[Node]) -> dict[Node, int]:
    """The last place at which each value is read, where what is made of it cheaply is read too; but for masks."""
    last: dict[Node, int] = {}
    for node in reversed(nodes):
        later = last.get(node, -1) if _is_inside(node) else -1
        for each in node.all_input_nodes if node not in masks else node.all_input_nodes[:1]:
            last[each] = max(last.get(each, -1), later, places[node])
    return last


def _made_of(argument: Node) -> set[Node]:
    """What is read where it is computed."""
    sources, seen, stack = set[Node](), {argument}, [argument]
    while stack:
        node = stack.pop()
        if _is_inside(node):
            stack += [n for n in node.all_input_nodes if n not in seen]
            seen.update(node.all_input_nodes)
        else:
            sources.add(node)
    return sources


def _is_inside(node: Node) -> bool:
    """Is the value part of what reads it, rather than in memory?"""
    return (is_cheap(node) or _is_norm(node)) and not any(True for _ in library_readers(node))


def _is_norm(node: Node) -> bool:
    """Of a batch, or what comes with it: the result is made of images and a number for each channel."""
    maker: Any = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else node
    return maker.target in _NORMS


_NORMS = (aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default)
