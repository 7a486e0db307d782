"""Remove operators that change nothing.

before:  %a = aten.view(%x, [32]);  %b = aten.view(%a, [4, 8]);  %c = aten.t(%b);  %d = aten.t(%c)
         %e = aten.clone(%d);  %f = aten.sin(%e)
after:   %f = aten.sin(%x)

Only what is exact: x + 0 stays, because -0.0 + 0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, output_of
from dovetail.normalize.passes.escape import escaping
from dovetail.ops.fake.symbolic.size_questions import all_same, same
from dovetail.ops.fake.tensor import run
from dovetail.ops.table import row_of

aten = torch.ops.aten
Node = torch.fx.Node

#: Give the node that may stand in for this one, or None; may simplify the node itself.
Fold = Callable[[Node], "Node | None"]


def fold(graph: AtenGraph) -> None:
    """One walk in order, so that chains collapse."""
    visible = set(output_of(graph.graph).all_input_nodes)
    kept = escaping(graph)
    placed = any(row_of(node.target).counts_from_storage for node in graph.graph.nodes)
    for node in graph.graph.nodes:
        rule = FOLDS.get(node.target) if node.op == "call_function" else None
        if rule is None or node.target in _COPIES and (node in kept or placed and not _begins_alike(node)):
            continue
        found = rule(node)
        if found is not None and node not in visible:
            node.replace_all_uses_with(found)


def _same(a: Any, b: Any) -> bool:
    return (
        all_same(a.shape, b.shape) and all_same(a.stride(), b.stride()) and a.dtype == b.dtype and a.device == b.device
        and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
    )  # fmt: skip


def _begins_alike(copy: Node) -> bool:
    """Does the copy begin where its argument does, each in its storage?"""
    a, b = copy.all_input_nodes[0].meta["val"], copy.meta["val"]
    return same(a.storage_offset(), b.storage_offset())


def _unchanged(node: Node) -> Node | None:
    """The argument, when the result cannot be told from it."""
    source = node.args[0]
    return source if _same(source.meta["val"], node.meta["val"]) else None  # type: ignore[union-attr,return-value]


def _view(node: Node) -> Node | None:
    """A view of a view is a view of the first."""
    source = node.args[0]
    while isinstance(source, Node) and source.target is aten.view.default:
        base = source.args[0]
        try:
            val = run(aten.view.default, (base.meta["val"], node.args[1]), {})  # type: ignore[union-attr]
        except (RuntimeError, ValueError):
            break
        if not all_same(val.stride(), node.meta["val"].stride()):
            break
        node.args = (base, node.args[1])
        source = base
    return _unchanged(node)


def _permutation(node: Any) -> list[int] | None:
    if not isinstance(node, Node) or node.op != "call_function" or node.target not in PERMUTATIONS:
        return None
    rank = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    order = list(range(rank))
    if node.target is aten.permute.default:
        return [d % rank for d in node.args[1]]  # type: ignore[union-attr]
    if rank >= 2 or node.target is aten.transpose.int:
        a, b = (0, 1) if node.target is aten.t.default else (d % max(rank, 1) for d in node.args[1:3])
        if rank:
            order[a], order[b] = order[b], order[a]
    return order


PERMUTATIONS = frozenset((aten.permute.default, aten.transpose.int, aten.t.default))


def _permute(node: Node) -> Node | None:
    """Two permutations in a row are one."""
    outer, inner = _permutation(node), _permutation(node.args[0])
    if outer is not None and inner is not None:
        node.args = (node.args[0].args[0], [inner[d] for d in outer])  # type: ignore[union-attr]
        node.target = aten.permute.default
        outer = [inner[d] for d in outer]
    return node.args[0] if outer == list(range(len(outer or ()))) else None  # type: ignore[return-value]


def _expand(node: Node) -> Node | None:
    source = node.args[0]
    if isinstance(source, Node) and source.target is aten.expand.default:
        base = source.args[0]
        if base.meta["val"].dim() == node.meta["val"].dim():  # type: ignore[union-attr]
            node.args = (base, list(node.meta["val"].shape))
    return _unchanged(node)


def _of_one(node: Node) -> Node | None:
    """The one tensor that there is to concatenate."""
    parts = node.args[0]
    return parts[0] if len(parts) == 1 and _same(parts[0].meta["val"], node.meta["val"]) else None  # type: ignore


#: Copies: where the memory itself is seen, they stay.
_COPIES = frozenset((aten.clone.default, aten._to_copy.default, aten.cat.default))

FOLDS: dict[Any, Fold] = {
    aten.view.default: _view,
    aten.permute.default: _permute,
    aten.transpose.int: _permute,
    aten.t.default: _permute,
    aten.expand.default: _expand,
    aten.slice.Tensor: _unchanged,
    aten.clone.default: _unchanged,
    aten._to_copy.default: _unchanged,
    aten.alias.default: _unchanged,
    aten.cat.default: _of_one,
}
