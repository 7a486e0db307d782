"""Compute equal things once.

before:  %a = aten.t(w); %b = aten.t(w); %c = aten.mm(x, %a); %d = aten.mm(y, %b)
after:   %a = aten.t(w); %c = aten.mm(x, %a); %d = aten.mm(y, %a)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.dead import has_effect


def merge_common(aten: AtenGraph) -> AtenGraph:
    """Operators on equal arguments are merged; results that the caller gets stay apart."""
    seen: dict[Any, torch.fx.Node] = {}
    output = next(n for n in reversed(aten.graph.nodes) if n.op == "output")
    kept = set(output.all_input_nodes) | {node for _, node in aten.mutated}
    for node in aten.graph.nodes:
        if node.op != "call_function" or has_effect(node.target):
            continue
        key = (node.target, _key(node.args), _key(tuple(sorted(node.kwargs.items()))))
        first = seen.setdefault(key, node)
        if first is not node and node not in kept:
            node.replace_all_uses_with(first)
            aten.graph.erase_node(node)
    return aten


def _key(value: Any) -> Any:
    """Hashable, and different for 1, 1.0, True and -0.0."""
    if isinstance(value, (tuple, list)):
        return tuple(_key(v) for v in value)
    if isinstance(value, torch.fx.Node):
        return value
    return type(value), repr(value) if isinstance(value, float) else value


