"""Remove operators whose results nobody reads.

before:  %a = aten.sin(%x);  %b = aten.cos(%x);  %c = aten.rand([3]);  return (%b,)
after:   %b = aten.cos(%x);  %c = aten.rand([3]);  return (%b,)

Random operators stay, because eager advances the generator; so do operators that check or print.
"""

from __future__ import annotations

from dovetail.ir.aten import AtenGraph
from dovetail.ops.calls.effects import has_effect


def remove_dead(aten_graph: AtenGraph) -> None:
    """Works backwards, once."""
    kept = {node for _, node in aten_graph.mutated}
    for node in reversed(aten_graph.graph.nodes):
        if node.op == "call_function" and not node.users and node not in kept and not has_effect(node):
            aten_graph.graph.erase_node(node)
