"""A graph for a GPU in which the CPU computes too, taken apart, so that the GPU's part can be a CUDA graph.

before:  %s = add(%step, 1);  %t = _to_copy(%s, device=gpu);  %g = mul(%w, %t)      %step: on the CPU
after:   part 0: %s = add(%step, 1)
         %t = _to_copy(%s, device=gpu)
         part 1: %g = mul(%w, %t)

An optimizer that counts its steps on the CPU is such a graph. `normalize/passes/uploads.py` has gathered what the CPU
brings to the GPU.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import HOST, traits
from dovetail.ir.staged import Staged
from dovetail.lower.stages import StageSplitter
from dovetail.ops.calls.effects import early, may_raise

aten = torch.ops.aten
Node = torch.fx.Node


def in_turns(graph: AtenGraph) -> Staged | None:
    """The CPU's part and the GPU's; None where there are not both, or where the CPU needs something of the GPU."""
    calls = [n for n in graph.graph.nodes if n.op == "call_function"]
    uploads = {n for n in calls if _is_upload(n)}
    if len(calls) == len(uploads) or not uploads:
        return None
    first = early(graph.graph).intersection(calls)
    rest = [n for n in calls if n not in first and n not in uploads]
    given = {u for n in rest for u in n.all_input_nodes} - uploads
    if not first or len({_device(n) for n in (*rest, *given, *uploads)} - {None}) > 1:
        return None
    if any(n.all_input_nodes[0] not in first for n in uploads):
        return None
    return _Turns(graph, uploads, set(rest)).run()


class _Turns(StageSplitter):
    def __init__(self, graph: AtenGraph, uploads: set[Node], rest: set[Node]) -> None:
        super().__init__(graph, uploads)
        self.rest = rest
        self.never_refuses = not any(n.target is not operator.getitem and may_raise(n.target) for n in rest)

    def place(self, node: Node) -> None:
        self.level[node] = int(node in self.rest or node in self.finders)

    def writes_itself(self, place: int, level: int, last: int) -> bool:
        return super().writes_itself(place, last if self.never_refuses else level, last)


def _is_upload(node: Node) -> bool:
    return node.target is aten._to_copy.default and _device(node) != HOST == _device(node.all_input_nodes[0])


def _device(node: Node) -> Any:
    """Where its tensors are; None for what has none."""
    value = node.meta.get("val")
    for one in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(one, torch.Tensor):
            return HOST if traits(one.device).host else one.device
    return None
