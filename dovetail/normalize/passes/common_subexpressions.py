"""Compute equal things once.

before:  %a = aten.t(%w);  %b = aten.t(%w);  %c = aten.mm(%x, %a);  %d = aten.mm(%y, %b)
after:   %a = aten.t(%w);  %c = aten.mm(%x, %a);  %d = aten.mm(%y, %a)

Random operators differ each time. What the caller gets to see stays apart: two results that are equal
in eager do not share memory. Collectives are made as often as in eager mode, unless the user says that all processes
compile the same graphs (`config.fewer_collectives`); what a backward half gathers again is not kept for it instead.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.escape import escaping
from dovetail.ops.calls.collectives import COLLECTIVES
from dovetail.ops.calls.effects import has_effect
from dovetail.ops.fake.symbolic.symint import dim_of, is_size


def merge_common(aten: AtenGraph, collectives: bool = False, backward: Set[torch.fx.Node] = frozenset()) -> None:
    """One walk, by value numbering; `collectives`: of these, too, within a half of a joint graph."""
    kept = escaping(aten)
    first: dict[Any, torch.fx.Node] = {}
    for node in aten.graph.nodes:
        collective = collectives and node.target in COLLECTIVES
        if node.op != "call_function" or has_effect(node) and not collective:
            continue
        named = tuple((name, _key(value)) for name, value in sorted(node.kwargs.items()))
        key = (node.target, _key(node.args), named, collective and node in backward)
        found = first.setdefault(key, node)
        if found is not node and node not in kept:
            node.replace_all_uses_with(found)
            aten.graph.erase_node(node)


def _key(value: Any) -> Any:
    """Hashable, and different for 1, 1.0, True, 0.0 and -0.0."""
    if isinstance(value, torch.fx.Node):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if is_size(value):
        value = dim_of(value)
    return type(value), repr(value) if isinstance(value, (float, complex)) else value
