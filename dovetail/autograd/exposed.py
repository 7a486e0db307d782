"""What the caller could write to while the backward pass relies on it.

    y = x.exp(); return y               the backward half reads %exp, which is the memory of what y is made of

A write to a tensor that is made of others is counted in its own version, not in those of its parts.
"""

from __future__ import annotations

from dovetail.autograd.cut import memory_of
from dovetail.ir.aten import Apart, JointGraph, Pair, Whole, parts_of


def exposed(joint: JointGraph, pair: Pair, apart: Apart) -> list[int]:
    """The outputs made of others of which that is so."""
    results = next(n for n in reversed(joint.aten.graph.nodes) if n.op == "output").args[0]
    saved = {memory_of(node) for node in pair.saved}

    def relied_on(k: int) -> bool:
        each = joint.aten.returned[k]
        if each.origin == "output":
            return relied_on(each.value)
        return each.origin == "result" and memory_of(results[each.value]) in saved

    wholes = [(k, t) for k, t in enumerate(apart.outputs) if isinstance(t, Whole)]
    return [k for k, template in wholes if any(map(relied_on, parts_of(template)))]
