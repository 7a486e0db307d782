"""A checkpointed function, recorded like any other code: what it computes is marked, to be computed again when
gradients arrive, as its author has asked (`autograd/cut.py`).

    checkpoint(f_0, (x,))  ->  %a = mm(%x, %w);  %b = relu(%a)         both marked with the number of the call

Where the program's policy chooses what is kept all the same, that is marked as well.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import SAC_IGNORED_OPS, SelectiveCheckpointContext

from dovetail.ir.aten import CHECKPOINTED, KEPT, WRITTEN, NotDifferentiable
from dovetail.normalize.recording.aliases import Base
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.calls.higher_order import Checkpoint

Policy = Callable[..., Any]


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
    last = _last(recorder)
    with torch.set_grad_enabled(learns), _chosen(recorder, target.policy()):
        results = run(graph, inputs, recorder)
    made = [t for t in results if isinstance(t, torch.Tensor)]
    if learns and target.reentrant and any(t.is_floating_point() and not t.requires_grad for t in made):
        raise NotDifferentiable("a checkpointed function gives what has no history without its checkpoint")
    recorder.checkpoints += 1
    for base, version in zip(bases, versions, strict=True):
        if base.version != version and learns:
            _note_write(recorder, base)
    _mark(recorder, last, CHECKPOINTED, recorder.checkpoints)
    return pytree.tree_unflatten(results, graph.structure)


def _note_write(recorder: AtenRecorder, base: Base) -> None:
    """The backward half writes to it again (`autograd/written_again.py`)."""
    node = base.first
    own = all(base is not each for each in recorder.inputs) or base.tensor.requires_grad
    if own or WRITTEN in node.meta or not recorder.computed_again:
        raise NotDifferentiable("a checkpointed function writes to what it is given")
    node.meta[WRITTEN] = recorder.checkpoints


@contextlib.contextmanager
def _chosen(recorder: AtenRecorder, policy: Policy | None) -> Iterator[None]:
    """Operators recorded inside are kept as the policy says, or as that of the checkpoint around does."""
    before = recorder.instead
    if policy is not None:
        recorder.instead = functools.partial(_recorded, recorder, policy)
    try:
        yield
    finally:
        recorder.instead = before


def _recorded(recorder: AtenRecorder, policy: Policy, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    instead, recorder.instead, last = recorder.instead, None, _last(recorder)
    try:
        result = recorder.dispatch(func, args, kwargs)
        if func not in SAC_IGNORED_OPS and _is_kept(policy, result, func, args, kwargs):
            _mark(recorder, last, KEPT, True)
    finally:
        recorder.instead = instead
    return result


def _is_kept(policy: Policy, result: Any, func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    context = SelectiveCheckpointContext(is_recompute=False)
    context.op_output = result
    found = policy(context, func, *args, **kwargs)
    if isinstance(found, bool):
        return found
    if found.name.endswith("OFFLOAD"):
        raise NotDifferentiable("a checkpoint moves to the host what it keeps")
    return bool(found.name.endswith("SAVE"))


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _last(recorder: AtenRecorder) -> torch.fx.Node | None:
    return next(iter(reversed(recorder.graph.nodes)), None)


def _mark(recorder: AtenRecorder, last: torch.fx.Node | None, name: str, value: Any) -> None:
    """In the meta of the calls behind `last`."""
    for node in reversed(recorder.graph.nodes):
        if node is last:
            return
        if node.op == "call_function":
            node.meta[name] = value
