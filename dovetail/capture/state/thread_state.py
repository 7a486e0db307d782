"""Thread state that traced code changes: grad mode, autocast, context variables.

Capture switches the real state while it traces, so that shapes and dtypes come out as they will, and puts it back.
The graph changes it for its own nodes and leaves it as it was; what the program leaves changed where the graph ends,
the residual changes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.amp.autocast_mode as autocast_mode

from dovetail.capture.process.settings import leave, put_back
from dovetail.capture.values.base import FALSE, Const, Session, Value, boolean
from dovetail.ir.guard import GuardKind
from dovetail.ir.marks import STRICT
from dovetail.ir.records import dataclass

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder


@dataclass(eq=False)
class EnteredMode:
    """An autocast context that the graph is in. `outside`: it undoes a manager that was entered before the graph."""

    manager: Any
    context: Any
    node: Any
    outside: bool


@dataclass(eq=False)
class VariableSet:
    """A context variable that the traced code has set and not reset."""

    variable: Any
    value: Value
    token: Value


@contextmanager
def preserved(session: Session) -> Iterator[None]:
    """Restore grad mode and leave autocast contexts that traced code entered, however capture ends.

    No class's `__torch_function__` sees what capture itself asks of tensors; what the program asks of them, it traces.
    """
    mode = torch.is_grad_enabled()
    try:
        with torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        put_back(session)
        while session.modes.undo:
            session.modes.undo.pop()()
        while session.modes.open:
            autocast_mode._exit_autocast(session.modes.open.pop().context)
        torch._C._set_grad_enabled(mode)


class GradMode(Const):
    """The mode that a graph which runs in any is in where the program asks: what the program sets by it, the graph
    does. It is a constant once something looks at it."""

    __slots__ = ("s", "real", "node")

    def __init__(self, s: Session) -> None:
        self.s, self.real, self.source = s, torch.is_grad_enabled(), None
        self.node = s.graph.call_function(torch.is_grad_enabled)

    @property
    def value(self) -> bool:
        _rely_on_grad_mode(self.s, self.real)
        return self.real

    @property
    def cls(self) -> type:  # type: ignore[override]
        return bool


def grad_mode(s: Session) -> Const:
    """What the program is told of it."""
    if s.options.standalone:
        return GradMode(s)
    _rely_on_grad_mode(s, torch.is_grad_enabled())
    return boolean(torch.is_grad_enabled())


def _rely_on_grad_mode(s: Session, mode: bool) -> None:
    if "grad_mode" not in s.modes.changed:
        s.guard(None, GuardKind.STATE, ("grad_mode", mode))


def set_grad_mode(s: Session, mode: Value) -> None:
    """A graph that runs in any mode sets it even where it is this one while it is captured."""
    real = mode.real if isinstance(mode, GradMode) else mode.native()
    if s.options.standalone or real != torch.is_grad_enabled():
        s.modes.changed.add("grad_mode")
        torch._C._set_grad_enabled(real)
        s.state_node(torch._C._set_grad_enabled, mode.node if isinstance(mode, GradMode) else real)


@contextmanager
def without_gradients(s: Session) -> Iterator[None]:
    """Inside, gradients are off, in the capture and in the graph."""
    mode = grad_mode(s)
    set_grad_mode(s, FALSE)
    try:
        yield
    finally:
        set_grad_mode(s, mode)


def enter_autocast(s: Session, manager: Any, arguments: tuple, outside: bool) -> None:
    """A node that enters autocast."""
    s.modes.changed.update(("autocast_cpu", "autocast_cuda"))
    node = s.state_node(autocast_mode._enter_autocast, *arguments)
    s.modes.open.append(EnteredMode(manager, autocast_mode._enter_autocast(*arguments), node, outside))


def exit_autocast(s: Session, manager: Any) -> None:
    """Leave a context; one that was entered before the graph is undone by one with the state from before it."""
    found = next((e for e in reversed(s.modes.open) if e.manager is manager and not e.outside), None)
    if found is None:
        names = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")
        enter_autocast(s, manager, tuple(s.get_attr(manager, n).native() for n in names), True)
        return
    s.modes.open.remove(found)
    autocast_mode._exit_autocast(found.context)
    s.state_node(autocast_mode._exit_autocast, found.node)


def leave_changed(s: Session, rebuilder: Rebuilder) -> list[str]:
    """Where the graph ends: nodes that leave what it is in, and lines that make the program's changes last."""
    for entered in reversed(s.modes.open):
        s.state_node(autocast_mode._exit_autocast, entered.node)
    left = [f"{rebuilder.expr(e.manager)}.__exit__(None, None, None)" for e in s.modes.open if e.outside]
    in_force = [f"{rebuilder.expr(e.manager)}.__enter__()" for e in s.modes.open if not e.outside]
    mode = torch.is_grad_enabled()
    grad = [f"{rebuilder.known(torch._C._set_grad_enabled)}({mode})"] if mode != s.modes.grad_before else []
    strict = [f"{rebuilder.known(STRICT)}.set({s.ends.strict})"] if s.ends.strict != s.ends.strict_before else []
    return [*left, *in_force, *grad, *strict, *leave(s, rebuilder)]


def set_variables(s: Session, rebuilder: Rebuilder) -> None:
    """Let the residual set the context variables that the traced code has left set; the tokens are the real ones."""
    for found in s.modes.variables:
        rebuilder.start(found.token, f"{rebuilder.known(found.variable)}.set({rebuilder.expr(found.value)})")
