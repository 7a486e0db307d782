"""A checkpointed function, recorded like any other code: what it computes is marked, to be computed again when
gradients arrive, as its author has asked (`autograd/cut.py`).

    checkpoint(f_0, (x,))  ->  %a = mm(%x, %w);  %b = relu(%a)         both marked with the number of the call
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from dovetail.ir.aten import CHECKPOINTED, NotDifferentiable
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.calls.higher_order import Checkpoint


def checkpointed(recorder: AtenRecorder, target: Checkpoint, args: tuple, run: Callable[..., Any]) -> Any:
    """The results. `args` are those of the node, `run` records a graph.

    Raises NotDifferentiable where a second pass would do something other than to compute the same.
    """
    graph, given, _, arguments, named, lifted = args
    leaves = pytree.tree_leaves((arguments, named))
    inputs = [*(leaves[k] for k in given), *lifted]
    bases = [recorder.handle(t).base for t in inputs if isinstance(t, torch.Tensor)]
    versions = [base.version for base in bases]
    learns = torch.is_grad_enabled() and (not target.reentrant or any(_requires_grad(each) for each in arguments))
    last = next(iter(reversed(recorder.graph.nodes)), None)
    with torch.set_grad_enabled(learns):
        results = run(graph, inputs, recorder)
    if versions != [base.version for base in bases]:
        raise NotDifferentiable("a checkpointed function writes to what it is given")
    made = [t for t in results if isinstance(t, torch.Tensor)]
    if learns and target.reentrant and any(t.is_floating_point() and not t.requires_grad for t in made):
        raise NotDifferentiable("a checkpointed function gives what has no history without its checkpoint")
    recorder.checkpoints += 1
    _mark(recorder, last)
    return pytree.tree_unflatten(results, graph.structure)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _mark(recorder: AtenRecorder, last: torch.fx.Node | None) -> None:
    """The nodes behind `last`."""
    for node in reversed(recorder.graph.nodes):
        if node is last:
            return
        if node.op == "call_function":
            node.meta[CHECKPOINTED] = recorder.checkpoints
