"""Reduce a sum of partial results once.

before:  %a = all_reduce(%x, "sum", g);  %s = add(%z, %a);  %b = all_reduce(%y, "sum", g);  %t = add(%s, %b)
after:   %p = add(%x, %y);  %b = all_reduce(%p, "sum", g);  %t = add(%z, %b)

So it is where linear layers that are split by columns read one input: its gradient is a sum of as many partial results.
The process makes other collectives than eager mode, so this is only done where the user says that all compile the same
graphs (`config.fewer_collectives`).
"""

from __future__ import annotations

import functools
from collections.abc import Set
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.collectives import ADDING, REDUCING
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.symbolic.size_questions import all_same

Node = torch.fx.Node
_ADD = torch.ops.aten.add.Tensor


def reduce_sums_once(aten: AtenGraph, backward: Set[Node]) -> None:
    """Within a half of a joint graph."""
    groups: dict[Any, list[Node]] = {}
    for node in aten.graph.nodes:
        if node.target in REDUCING and node.args[1] in ADDING and _meta(node).is_floating_point():
            total = _sum_of(node)
            if total is not None:
                groups.setdefault((total, node.target, node.args[1:], node in backward), []).append(node)
    with on_fakes():
        for terms in groups.values():
            if len(terms) > 1 and all(_look_alike(term.args[0], terms[0].args[0]) for term in terms):
                _reduce_last(aten, terms)


def _sum_of(term: Node) -> Node | None:
    """The last of the additions whose results nobody else reads."""
    found = None
    while (addition := _adds(term)) is not None:
        found = term = addition
    return found


def _adds(term: Node) -> Node | None:
    """The addition that it is a term of, if nobody else reads it."""
    (user,) = term.users if len(term.users) == 1 else (None,)
    if user is None or user.target is not _ADD or user.kwargs or user.args[0] is user.args[1]:
        return None
    alike = all(isinstance(each, Node) and _look_alike(each, user) for each in user.args)
    return user if alike else None


def _reduce_last(aten: AtenGraph, terms: list[Node]) -> None:
    """The last one reduces what the others would have; their additions are gone with them."""
    *others, last = terms
    write = GraphWriter(aten.graph, last)
    total = functools.reduce(lambda a, b: write.call(_ADD, a, b), [term.args[0] for term in terms])
    last.args = (total, *last.args[1:])
    for term in others:
        (addition,) = term.users
        (rest,) = (each for each in addition.args if each is not term)
        addition.replace_all_uses_with(rest)  # type: ignore[arg-type]
        aten.graph.erase_node(addition)
        aten.graph.erase_node(term)


def _look_alike(one: Any, other: Any) -> bool:
    a, b = _meta(one), _meta(other)
    return a.dtype == b.dtype and all_same(a.shape, b.shape) and all_same(a.stride(), b.stride())


def _meta(node: Any) -> Any:
    return node.meta["val"]
