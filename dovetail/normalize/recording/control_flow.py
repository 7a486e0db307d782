"""Branches, loops and checks of a captured graph as operators that run graphs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.errors import Unsupported
from dovetail.ir.checks import assumed
from dovetail.normalize.recording import branches, loops
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.subgraphs import Record
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.autograd_calls import unseen_leaf_


def _check(recorder: AtenRecorder, record: Record, condition: Any, *_: Any) -> None:
    """`torch._check`: what follows relies on it, and the compiled graph checks it."""
    holds = condition.node.expect_true("", 0) if isinstance(condition, torch.SymBool) else condition
    if not holds:
        raise Unsupported("data-dependent-size", "torch._check states what cannot be")


def _leaf(recorder: AtenRecorder, record: Record, tensor: torch.Tensor) -> torch.Tensor:
    """What is computed from it has a history; what the tensor itself would be given is left out."""
    recorder.unseen.append(tensor)
    return tensor.requires_grad_()


#: How nodes with these targets are recorded: (recorder, record, *arguments) -> results.
CONTROL: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch._check, assumed), _check), unseen_leaf_: _leaf,
    higher_order.cond: branches.cond, higher_order.while_loop: loops.while_loop, higher_order.scan: loops.scan,
}  # fmt: skip


def left_to_engine(module: torch.fx.GraphModule) -> bool:
    """Does a backward pass through the graph depend on which way it went, or run code of the user's own?"""
    return any(
        node.target in CONTROL and CONTROL[node.target] not in (_check, _leaf)
        or isinstance(node.target, higher_order.Checkpoint) and not node.target.plain
        or isinstance(node.target, higher_order.Apply) and node.target.graphs is None
        or node.op == "get_attr" and isinstance(inner := getattr(module, node.target, None), torch.fx.GraphModule)
        and left_to_engine(inner)
        for node in module.graph.nodes
    )  # fmt: skip
