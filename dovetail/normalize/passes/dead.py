"""Remove operators whose results nobody reads.

before:  %a = aten.sin(%x);  %b = aten.cos(%x);  %c = aten.rand([3]);  return (%b,)
after:   %b = aten.cos(%x);  %c = aten.rand([3]);  return (%b,)

Random operators stay, because eager advances the generator; so do operators that check or print.
"""

from __future__ import annotations

import operator

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ops.schema import facts

aten = torch.ops.aten

#: Operators called for what they check.
_CHECKS = frozenset(
    "_assert_async _functional_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range "
    "sym_constrain_range_for_size _print".split()
)


def remove_dead(aten_graph: AtenGraph) -> None:
    """Works backwards, once."""
    kept = {node for _, node in aten_graph.mutated}
    for node in reversed(aten_graph.graph.nodes):
        if node.op == "call_function" and not node.users and node not in kept and not has_effect(node):
            aten_graph.graph.erase_node(node)


def has_effect(node: torch.fx.Node) -> bool:
    """Does the call do anything but return results?"""
    if node.target is operator.getitem:
        return False
    known = facts(node.target)
    namespace, _, name = node.target._schema.name.partition("::")  # type: ignore[union-attr]
    foreign = namespace not in ("aten", "prims")
    return bool(known.written) or known.random or foreign or not known.returned or name in _CHECKS
