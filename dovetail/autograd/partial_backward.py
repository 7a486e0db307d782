"""The backward graph where some of the results have no gradient.

before:  %a = mul(%tangent_0, 2);  %b = div(%tangent_1, %root);  %c = add(%a, %b);  return (%c,)
after:   %a = mul(%tangent_0, 2);  return (%a,)                                     without %tangent_1

Zeros in their place would do, were it not for derivatives that are infinite or NaN: zero times those is NaN, where
PyTorch's engine does not run the operator at all. A backward pass is linear in the tangents, so whatever is computed
from missing ones alone is missing too.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch
import torch.fx

from dovetail.autograd.partition import GraphCopy
from dovetail.autograd.written_again import still_written
from dovetail.ir.aten import AtenGraph
from dovetail.ops.fake.symbolic.size_questions import all_same, dim_or_node

aten = torch.ops.aten
Node = torch.fx.Node


def tells_sizes(backward: AtenGraph) -> bool:
    """May the sizes of one of its inputs be known from another alone?"""
    values = (n.meta["val"] for n in backward.graph.nodes if n.op == "placeholder")
    return any(isinstance(v, torch.Tensor) and v._has_symbolic_sizes_strides for v in values)


def without(backward: AtenGraph, tangents: Set[str], absent: Set[str]) -> AtenGraph:
    """A copy of the graph in which nothing is computed from the placeholders `absent`, which are some of the
    `tangents`. They themselves are gone, unless they may tell a size; what they were combined with may be dead."""
    made = _Without(backward, tangents, absent)
    for node in backward.graph.nodes:
        made.node(node)
    written = tuple(still_written(backward.mutated, made.graph, made.env))
    return AtenGraph(made.graph, written, dict(backward.constants))


class _Without(GraphCopy):
    def __init__(self, backward: AtenGraph, tangents: Set[str], absent: Set[str]) -> None:
        super().__init__()
        self.tangents, self.absent = tangents, absent
        self.kept = tells_sizes(backward)
        self.from_tangents: set[Node] = set()  # computed from tangents
        self.missing: set[Node] = set()  # from absent ones alone

    def node(self, node: Node) -> None:
        before = [n for n in node.all_input_nodes if n in self.from_tangents]
        if before or node.op == "placeholder" and node.name in self.tangents:
            self.from_tangents.add(node)
        if node.op == "output":
            self.output(None if v in self.missing else v for v in node.args[0])  # type: ignore[union-attr]
        elif node.name in self.absent or before and self.missing.issuperset(before):
            self.missing.add(node)
            if node.op == "placeholder" and self.kept:
                self.placeholder(node)
        elif node.op == "placeholder":
            self.placeholder(node)
        else:
            gone = [n for n in before if n in self.missing]
            term = self.only_term(node) if gone else None
            if term is not None:
                self.env[node] = self.env[term]
                return
            for each in gone:
                self.env[each] = self.zeros(each)
            self.copy(node)

    def only_term(self, node: Node) -> Node | None:
        """What a sum of something and nothing is, if the layout is the same."""
        if node.target not in (aten.add.Tensor, aten.sub.Tensor) or node.kwargs:
            return None
        left, right = node.args
        if left in self.missing and node.target is aten.sub.Tensor:
            return None
        kept: Any = right if left in self.missing else left
        return kept if isinstance(kept, Node) and _alike(kept.meta["val"], node.meta["val"]) else None

    def zeros(self, node: Node) -> Node:
        value = node.meta["val"]
        named = {"dtype": value.dtype, "device": value.device}
        layout = [list(map(dim_or_node, numbers)) for numbers in (value.size(), value.stride())]
        made = self.graph.call_function(aten.empty_strided.default, tuple(layout), named)
        filled = self.graph.call_function(aten.fill.Scalar, (made, 0))
        made.meta["val"] = filled.meta["val"] = value
        return filled


def _alike(one: Any, other: Any) -> bool:
    same_kind = one.dtype is other.dtype and one.device == other.device
    return same_kind and all_same(one.size(), other.size()) and all_same(one.stride(), other.stride())
