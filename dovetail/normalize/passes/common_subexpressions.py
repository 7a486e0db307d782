"""Compute equal things once.

before:  %a = aten.t(%w);  %b = aten.t(%w);  %c = aten.mm(%x, %a);  %d = aten.mm(%y, %b)
after:   %a = aten.t(%w);  %c = aten.mm(%x, %a);  %d = aten.mm(%y, %a)

Random operators differ each time. What the caller gets to see stays apart: two results that are equal
in eager do not share memory.
"""

from __future__ import annotations

from typing import Any

import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.escape import escaping
from dovetail.ops.calls.effects import has_effect
from dovetail.ops.fake.symbolic.symint import dim_of, is_size


def merge_common(aten: AtenGraph) -> None:
    """One walk, by value numbering."""
    kept = escaping(aten)
    first: dict[Any, torch.fx.Node] = {}
    for node in aten.graph.nodes:
        if node.op != "call_function" or has_effect(node):
            continue
        key = (node.target, _key(node.args), tuple((name, _key(value)) for name, value in sorted(node.kwargs.items())))
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
