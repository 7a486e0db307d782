"""Read at the inverse of a permutation what would be added to zeros at the permutation.

before:  %p = sort(%keys)[1];  %q = index_put(%empty, [%p], arange(n));  %g = index_put(%zeros, [%p], %rows, True)
after:   %g = index(%rows, [%q])

before:  %g = index_put(%zeros, [%p // k], %rows, True)
after:   %g = index(%rows, [%q]).view(m, k, ...).sum(1)

So are gradients of what a mixture of experts sorts by expert: each row has one place, or `k`, which need not be sorted
to be found. An inverse that the program has made is used; another takes one write for each element.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.affine_index import Affine, affine
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.symbolic.size_questions import same
from dovetail.ops.integer_ends import END

aten = torch.ops.aten
Node = torch.fx.Node


def read_at_inverses(graph: AtenGraph) -> None:
    """In place on the graph."""
    inverses: dict[Node, Node | None] = {}  # of the permutations so far
    with on_fakes():
        for node in list(graph.graph.nodes):
            if _permutes(node):
                inverses[node] = None
            elif node.target in _ADDS and inverses:
                _note(node, inverses)
                made = _gathered(GraphWriter(graph.graph, node), node, inverses)
                if made is not None and made.meta["val"].stride() == node.meta["val"].stride():
                    node.replace_all_uses_with(made)
                    graph.graph.erase_node(node)
    if inverses:
        remove_dead(graph)


def _permutes(node: Node) -> bool:
    """Does it hold each of 0 .. n - 1 once?"""
    if node.target is aten.randperm.default:
        return node.meta["val"].dtype is torch.int64
    source = node.args[0] if node.target is operator.getitem and node.args[1] == 1 else None
    return isinstance(source, Node) and source.target in _SORTS and node.meta["val"].dim() == 1


_SORTS = (aten.sort.default, aten.sort.stable)


def _note(node: Node, inverses: dict[Node, Node | None]) -> None:
    """Of each place of a permutation its number: the inverse, whatever was there before."""
    base, index, values, adds = _ADDS[node.target](*node.args, **node.kwargs)
    if adds or index not in inverses or not _alike(base, index) or not _alike(values, index):
        return
    if affine(values) == Affine(0, frozenset({(-1, 1)})):
        _are_inverses(inverses, index, node)


def _are_inverses(inverses: dict[Node, Node | None], one: Node, other: Node) -> None:
    inverses[one], inverses[other] = other, one
    for node in (one, other):
        if type(count := node.meta["val"].shape[0]) is int:
            node.meta[END] = count


def _gathered(write: GraphWriter, node: Node, inverses: dict[Node, Node | None]) -> Node | None:
    """What each row is given, None where the rows are no permutation's."""
    base, index, values, adds = _ADDS[node.target](*node.args, **node.kwargs)
    if not adds or not isinstance(index, Node) or base.target not in _ZEROS or not isinstance(values, Node):
        return None
    permutation, times = _divided(index)
    out, given = base.meta["val"], values.meta["val"]
    if permutation not in inverses or out.dtype is not given.dtype or out.dim() != given.dim():
        return None
    count = permutation.meta["val"].shape[0]
    sizes = count, out.shape[0] * times, *out.shape[1:]
    if not all(map(same, sizes, (out.shape[0] * times, *given.shape))):
        return None
    inverse = inverses[permutation] or _inverse(write, permutation)
    _are_inverses(inverses, permutation, inverse)
    rows = write.call(aten.index.Tensor, values, [inverse])
    if times == 1:
        return rows
    apart = write.call(aten.view.default, rows, [out.shape[0], times, *out.shape[1:]])
    return write.call(aten.sum.dim_IntList, apart, [1])


def _divided(index: Node) -> tuple[Node, int]:
    """A permutation and the number that its elements are divided by, rounded down."""
    if index.target is aten.floor_divide.default and type(index.args[1]) is int and index.args[1] > 0:
        source: Any = index.args[0]
        return source, index.args[1]
    return index, 1


def _inverse(write: GraphWriter, permutation: Node) -> Node:
    value = permutation.meta["val"]
    base = write.call(aten.new_zeros.default, permutation, list(value.shape))
    numbers = write.call(aten.arange.default, value.shape[0], device=value.device)
    return write.call(aten.index_put.default, base, [permutation], numbers)


def _alike(node: Any, other: Node) -> bool:
    """Two vectors of one length?"""
    one, two = (n.meta["val"] if isinstance(n, Node) else None for n in (node, other))
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return False
    return one.dim() == two.dim() == 1 and same(one.shape[0], two.shape[0])


# ---------------------------------------------------------------- calls: base, index, values, whether they are added

_ZEROS = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)


def _put(base: Node, indices: Any, values: Any, accumulate: bool = False) -> tuple[Node, Any, Any, bool]:
    return base, indices[0] if len(indices) == 1 else None, values, accumulate


def _add(base: Node, dim: int, index: Node, values: Node, alpha: Any = 1) -> tuple[Node, Any, Any, bool]:
    return base, index if dim == 0 and alpha == 1 else None, values, True


_ADDS: dict[Any, Any] = {
    aten.index_put.default: _put, aten._unsafe_index_put.default: _put, aten.index_add.default: _add,
}
