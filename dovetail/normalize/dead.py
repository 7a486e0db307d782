"""Remove operators whose results nobody reads.

before:  %a = aten.add(x, 1); %b = aten.mul(x, 2); return (%b,)
after:   %b = aten.mul(x, 2); return (%b,)

Operators that advance a random generator, assert something or write somewhere stay.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph


def has_effect(target: Any) -> bool:
    """Must this operator run even if its result is not read?"""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return True
    return not target._schema.returns or "assert" in target._schema.name


def remove_dead(aten: AtenGraph) -> AtenGraph:
    """In place on the graph; linear."""
    kept = {node for _, node in aten.mutated}
    for node in reversed(aten.graph.nodes):
        if node.op == "call_function" and not node.users and node not in kept and not has_effect(node.target):
            aten.graph.erase_node(node)
    return aten
