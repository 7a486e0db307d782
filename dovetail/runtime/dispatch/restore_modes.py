"""What a compilation or a graph that is interrupted may have left behind on its thread, and putting it back; and what
the thread does without while something is compiled.

Every stage leaves its modes by `with`; but Ctrl-C may arrive within the few lines of Python that enter or leave one.
A graph enters and leaves modes by nodes; but an operator between them may raise.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.amp import autocast_mode

from dovetail.ir.settings import AUTOCAST_DEVICES, SETTERS

_C = torch._C
_ENTERING = (_C._set_grad_enabled, autocast_mode._enter_autocast)


class ModeState(NamedTuple):
    dispatch_modes: int
    function_modes: int
    grad: bool
    autocast: tuple[tuple[bool, Any], ...]
    autocast_depth: int


def mode_state() -> ModeState:
    torch.autocast_increment_nesting()
    return ModeState(
        _C._len_torch_dispatch_stack(),
        _C._len_torch_function_stack(),
        torch.is_grad_enabled(),
        tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES),
        torch.autocast_decrement_nesting(),
    )


def restore(before: ModeState) -> None:
    """Make it so again, whatever interrupts it."""
    while True:
        try:
            _restore(before)
        except KeyboardInterrupt:
            continue  # the first one is on its way to the user already
        return


def _restore(before: ModeState) -> None:
    while _C._len_torch_dispatch_stack() > before.dispatch_modes:
        _C._pop_torch_dispatch_stack(None)
    while _C._len_torch_function_stack() > before.function_modes:
        _C._pop_torch_function_stack()
    for device, (enabled, dtype) in zip(AUTOCAST_DEVICES, before.autocast, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    more = mode_state().autocast_depth - before.autocast_depth
    for _ in range(abs(more)):
        (torch.autocast_decrement_nesting if more > 0 else torch.autocast_increment_nesting)()
    if before.autocast_depth == 0:
        torch.clear_autocast_cache()
    _C._set_grad_enabled(before.grad)


def mode_changes(graph: torch.fx.Graph) -> tuple:
    """The functions by which the graph enters modes, or changes settings."""
    return tuple({n.target: None for n in graph.nodes if n.target in SETTERS or n.target in _ENTERING})


# ---------------------------------------------------------------- while something is compiled


@contextlib.contextmanager
def frame_hook_off() -> Iterator[None]:
    """In this block torch.compile's frame hook looks at nothing: our own frames are none of its business."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    before = _C._dynamo.eval_frame.set_eval_frame(None)
    try:
        yield
    finally:
        _C._dynamo.eval_frame.set_eval_frame(before)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """In this block tensors are saved as they are: the user's hooks are for those that a backward pass will need.

    Compiling runs operators on tensors without memory, whose hooks' work would become part of the graph, and would be
    done again when that runs.
    """
    found, engine = [], _C._autograd
    enabled: Any = engine._saved_tensors_hooks_is_enabled  # type: ignore[attr-defined]
    while enabled() and (hooks := engine._top_saved_tensors_default_hooks(True)) is not None:
        found.append(hooks)
        engine._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(found):
            engine._push_saved_tensors_default_hooks(*hooks)
