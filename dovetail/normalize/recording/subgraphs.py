"""Operators that run graphs of their own: their graphs are recorded like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.errors import Unsupported
from dovetail.ir.aten import AtenGraph, Subprogram
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.symbolic.size_questions import dim_or_node

Record = Callable[[Any, Sequence[Any]], AtenGraph]


def inner(recorder: AtenRecorder, record: Record, module: Any, tensors: Sequence[Any]) -> AtenGraph:
    """The graph of `module` for such tensors as the nodes of `tensors` give."""
    fakes = [
        recorder.node_of(recorder.handle(t)).meta["val"] if isinstance(t, torch.Tensor) else t for t in tensors
    ]
    with _disable_current_modes():  # else this graph's operators would be recorded outside as well
        return record(module, fakes)


def call_node(recorder: AtenRecorder, call: Subprogram, args: tuple, vals: list) -> list:
    """A node for the call; its results as tensors of the program."""

    def node(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return recorder.node_of(recorder.handle(value))
        return [node(v) for v in value] if isinstance(value, (list, tuple)) else dim_or_node(value)

    results = [to_fake(v) if isinstance(v, torch.Tensor) else v for v in vals]
    recorder.bind(recorder.create(call, tuple(map(node, args)), {}, results), results)
    return results


def refused(recorder: AtenRecorder, reason: str) -> Unsupported:
    remedy, stack = "Return the new value and write it after the call.", tuple(recorder.stack or ())
    return Unsupported("mutation-in-subgraph", reason, remedy, stack)
