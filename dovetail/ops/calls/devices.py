"""What the CPU computes in a graph for a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.devices import traits
from dovetail.ops.calls.effects import has_effect


def early(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Inputs that are on the CPU, or no tensors, and what can be computed from them there."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        given = node.op in ("placeholder", "get_attr")
        computed = node.op == "call_function" and not has_effect(node) and all(n in found for n in node.all_input_nodes)
        if (given or computed) and stays(node.meta.get("val")):
            found.add(node)
    return found


def stays(value: Any) -> bool:
    """Is it on the CPU, or no tensor?"""
    if isinstance(value, (tuple, list)):
        return all(map(stays, value))
    return not isinstance(value, torch.Tensor) or traits(value.device).host
