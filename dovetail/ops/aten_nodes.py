"""Questions about nodes of an ATen graph: whether they compute anything, where, and how much memory they fill."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx

from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.size_questions import hint
from dovetail.ops.table import row_of

Node = torch.fx.Node


def is_view(node: Node) -> bool:
    """Does it share memory with its first argument?"""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        several: Any = node.args[0]
        return is_view(several) and isinstance(several.meta.get("val"), (tuple, list))
    return facts(node.target).view


def is_library(node: Any) -> bool:
    """Is it a call of a library, which has operands and results in memory?"""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    row = row_of(node.target)
    return row.lowering is None or row.rounds_otherwise


def library_readers(node: Node) -> Iterator[Node]:
    """The libraries' calls that read the value, or a view of it: it is in memory for them."""
    for user in node.users:
        if is_library(user):
            yield user
        elif is_view(user):
            yield from library_readers(user)


def is_cheap(node: Node) -> bool:
    """Is it a view, or does its operator take no longer than memory that it would fill?"""
    return node.op == "call_function" and (is_view(node) or row_of(node.target).cheap)


def large(nodes: Iterable[Node], beside: Node) -> list[Node]:
    """Those that are not small beside another."""
    return [n for n in nodes if nbytes(n) * 8 > nbytes(beside)]


def nbytes(node: Node) -> int:
    """Typically."""
    val = node.meta.get("val")
    return hint(val.numel()) * val.itemsize if isinstance(val, torch.Tensor) else 0


def relu_argument(node: Node) -> Node | None:
    """What the relu was given whose derivative the node computes: it says the same as the result, which it looks at."""
    if node.target is not torch.ops.aten.threshold_backward.default:
        return None
    _, result, threshold = node.args
    if not isinstance(result, Node) or result.target is not torch.ops.aten.relu.default:
        return None
    argument = result.args[0]
    whole = isinstance(threshold, (int, float)) and threshold >= 0
    return argument if whole and isinstance(argument, Node) else None


def memory_of(node: Node) -> Node:
    """The node whose memory this one is a view of."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node
