"""Bring what the CPU computes for a GPU there at once.

before:  %a = mul(%step, 0.1);  %y = div(%x, %a);  %b = add(%step, 1);  %z = div(%y, %b)      %step, %a, %b: on the CPU
after:   %a = mul(%step, 0.1);  %b = add(%step, 1)
         %table = _to_copy(stack([%a, %b]), device=gpu);  %y = div(%x, %table[0]);  %z = div(%y, %table[1])

An operator on a GPU takes a tensor of no dimensions from the CPU as a number, for which it must wait and be launched by
itself: an optimizer whose steps are counted on the CPU has several for each parameter. Numbers in the GPU's memory are
read by the kernels that need them. What the CPU computes comes first, where it needs nothing from a GPU.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import traits
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.effects import early, stays
from dovetail.ops.fake import on_fakes

aten = torch.ops.aten
Node = torch.fx.Node
#: Elements between numbers: kernels that differ only in which multiple of it they read are one kernel.
APART = 16


def upload_together(graph: AtenGraph) -> None:
    """In place on the graph."""
    users = [n for n in graph.graph.nodes if _elsewhere(n)]
    if not users:
        return
    known = early(graph.graph)
    first = next(n for n in graph.graph.nodes if n not in known and n.op not in ("placeholder", "get_attr"))
    tables: dict[tuple[torch.dtype, torch.device], dict[Node, None]] = defaultdict(dict)
    for user in users:
        for node in user.all_input_nodes:
            if node in known and _is_number(node):
                tables[node.meta["val"].dtype, user.meta["val"].device][node] = None
    if not tables:
        return
    for node in [n for n in graph.graph.nodes if n in known and n.op == "call_function"]:
        first.prepend(node)
    with on_fakes():
        for (_, device), numbers in tables.items():
            found = _uploaded(GraphWriter(graph.graph, first), list(numbers), device)
            for user in users:
                if user.meta["val"].device == device:
                    for node in user.all_input_nodes:
                        user.replace_input_with(node, found.get(node, node))


def _uploaded(write: GraphWriter, numbers: list[Node], device: torch.device) -> dict[Node, Node]:
    """Each number as a tensor on the device."""
    rows = [write.call(aten.expand.default, number, [APART]) for number in numbers]
    stacked = write.call(aten.stack.default, [rows[0], *rows])  # a kernel that reads at no offset would be another one
    table = write.call(aten._to_copy.default, stacked, device=device, non_blocking=True)
    firsts = write.call(aten.select.int, table, 1, 0)
    return {number: write.call(aten.select.int, firsts, 0, k) for k, number in enumerate(numbers, 1)}


def _elsewhere(node: Node) -> bool:
    """Does the operator compute each element by itself, on a device other than the CPU?"""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or traits(value.device).host:
        return False
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags


def _is_number(node: Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.dim() == 0 and stays(value) and not value.is_complex()
