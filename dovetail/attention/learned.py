"""A score_mod apart from what it reads of tables that need gradients: those elements become inputs of it.

before:  f(score, b, h, i, j, slopes):           %e = index(%slopes, [%h]);  return %score * %e
after:   f(score, b, h, i, j, slopes, e):        return %score * %e
and      reads(score, b, h, i, j, slopes):       return %e

The gradient of an element is then an expression like any other, and the table's is the sum of them at its places.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.errors import Unsupported

#: What takes elements of a table and nothing else; by function, or by the name of a method.
_TAKES = frozenset((torch.ops.aten.index.Tensor, operator.getitem, "__getitem__", "select"))


def apart(function: Any, learned: Sequence[int]) -> tuple[Any, Any]:
    """(reads, function); reads is None if nothing is learned. `learned` are numbers of parameters.

    Raises Unsupported if such a tensor is used otherwise than element by element.
    """
    if not learned:
        return None, function
    elements = _elements(function.graph, learned)
    reads = torch.fx.Graph()
    memo: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in function.graph.nodes:
        if node.op != "output":
            memo[node] = reads.node_copy(node, memo.__getitem__)
    reads.output([reads.call_method("clone", (memo[node],)) for node in elements])
    changes, memo = torch.fx.Graph(), {}
    for node in (n for n in function.graph.nodes if n.op == "placeholder"):
        memo[node] = changes.node_copy(node)
    memo |= {node: changes.placeholder(f"element_{k}") for k, node in enumerate(elements)}
    for node in function.graph.nodes:
        if node not in memo:
            memo[node] = changes.node_copy(node, memo.__getitem__)
    for graph in (reads, changes):
        graph.eliminate_dead_code()
    return torch.fx.GraphModule(function, reads), torch.fx.GraphModule(function, changes)


def _elements(graph: torch.fx.Graph, learned: Sequence[int]) -> list[torch.fx.Node]:
    """The first nodes without dimensions that are made of the tables."""
    parameters = [n for n in graph.nodes if n.op == "placeholder"]
    tables = [parameters[k] for k in learned]
    found = [node for node in tables if _scalar(node)]
    whole = {node for node in tables if not _scalar(node)}
    for node in graph.nodes:
        if "grad_enabled" in str(node.target):
            raise Unsupported("attention-function", "the function turns gradients off and on")
        if node.op == "output" or whole.isdisjoint(node.all_input_nodes):
            continue
        if node.target not in _TAKES:
            raise Unsupported("attention-function", "the function changes a table that needs gradients")
        if _scalar(node):
            found.append(node)
        else:
            whole.add(node)
    return found


def _scalar(node: torch.fx.Node) -> bool:
    return bool(node.meta["fake"].dim() == 0)
