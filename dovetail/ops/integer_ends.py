"""Integers of a graph that are known to be small: places in a dimension, and what is left of a division.

    topk(x, 2)[1]        less than the size of the last dimension of x
    (n % 100).view(-1)   less than 100

Sorting such numbers takes less time, and indices among them need no check.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ops.calls.schema import facts

aten = torch.ops.aten
Node = torch.fx.Node
END = "end"  # in a node's `meta`


def note_ends(graph: torch.fx.Graph) -> None:
    """Of each node; what runs in a backward pass is given some of them, and does not see where they come from."""
    for node in graph.nodes:
        end = _end(node) if END not in node.meta and _dtype(node) is torch.int64 else None
        if end is not None:
            node.meta[END] = end


def end_of(node: Node) -> int | None:
    """A number that all of the tensor's integers are below, none of them negative; None where that is not known."""
    return node.meta.get(END)


def _end(node: Node) -> int | None:
    rule = _ENDS.get(node.target)
    if rule is not None:
        return rule(node)
    if not isinstance(node.target, torch._ops.OpOverload) or not node.args:
        return None
    moves = facts(node.target).view or node.target in _COPIES
    source: Any = node.args[0]
    return end_of(source) if moves and isinstance(source, Node) and _dtype(source) is _dtype(node) else None


def _dtype(node: Node) -> Any:
    return getattr(node.meta.get("val"), "dtype", None)


def _item(node: Node) -> int | None:
    """Places are the second result."""
    maker: Any = node.args[0]
    known = node.args[1] == 1 and maker.target in _SEARCHES
    return _along(maker, *_SEARCHES[maker.target]) if known else None


def _along(node: Node, place: int, default: int | None) -> int | None:
    """How many places there are along the dimension that is argument number `place`; None: in all."""
    source: Any = node.args[0]
    dim: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dim", default)
    val = source.meta["val"]
    size = val.numel() if dim is None else val.shape[dim] if val.dim() else 1
    return size if type(size) is int else None


def _divided(node: Node) -> int | None:
    end, divisor = end_of(node.args[0]), node.args[1]  # type: ignore[arg-type]
    return -(-end // divisor) if end is not None and type(divisor) is int and divisor > 0 else None


def _remainder(node: Node) -> int | None:
    divisor: Any = node.args[1]
    return divisor if type(divisor) is int and divisor > 0 else None


_COPIES = (aten.clone.default, aten._to_copy.default)
#: Where their dimension stands among the arguments, and what it is if it does not.
_SEARCHES: dict[Any, tuple[int, int]] = {
    aten.topk.default: (2, -1), aten.sort.default: (1, -1), aten.sort.stable: (9, -1), aten.max.dim: (1, -1),
    aten.min.dim: (1, -1),
}  # fmt: skip
_ENDS: dict[Any, Callable[[Node], int | None]] = {
    operator.getitem: _item, aten.remainder.Scalar: _remainder, aten.floor_divide.default: _divided,
    **dict.fromkeys((aten.argmax.default, aten.argmin.default), lambda node: _along(node, 1, None)),
}  # fmt: skip
