"""Settings of the whole process that traced code changes.

Capture turns them for itself, so that what it runs natively and what the program asks is right, and puts them back.
Where graphs may not break, and of the default dtype always, nodes turn them inside the graph, which PyTorch then runs.
Else the graph ends before the next operator. What is left changed where it ends, the residual changes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.settings import AUTOCAST, HOOKS_DISABLED, SETTINGS

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder
    from dovetail.capture.session import Session

#: Each piece of process-wide and thread-wide state that traced code depends on; a STATE guard's payload is
#: `(name, value)`.
READERS: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    **AUTOCAST,
    "default_dtype": torch.get_default_dtype,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    **SETTINGS,
}


@dataclass(frozen=True)
class Switch:
    """`key` names the setting in `READERS`, `also` others that it is a part of. `silent`: no operator asks for
    it, and capture does not turn it."""

    key: str
    write: Callable[[Any], Any]
    silent: bool = False
    also: tuple[str, ...] = ()

    def in_graph(self, s: Session) -> bool:
        """Does the graph switch it, too?"""
        return not self.silent and (self.key == "default_dtype" or not s.ends.breaks)


@dataclass
class Turned:
    """What a setting was before the graph, and is now."""

    switch: Switch
    before: Any
    now: Any


def state(s: Session, name: str) -> Any:
    """What the setting is now, for the program; the entry relies on it unless the graph has changed it."""
    try:
        found = READERS[name]()
    except (AssertionError, RuntimeError) as error:  # there is no such device, or the program has set it in two ways
        return s.throw_native(error)
    if name not in s.modes.changed:
        s.guard(None, GuardKind.STATE, (name, found))
    return found


def value(s: Session, switch: Switch) -> Any:
    """What the setting is now; the entry relies on what it was before the graph."""
    found = s.modes.switched.get(switch.key)
    if found is not None:
        return found.now
    before = READERS[switch.key]()
    s.guard(None, GuardKind.STATE, (switch.key, before))
    return before


def turn(s: Session, switch: Switch, wanted: Any) -> None:
    """Give the setting the wanted value, in the capture and in the graph or the residual."""
    before = value(s, switch)
    if wanted == before:
        return
    for name in switch.also:
        state(s, name)
    if not switch.silent:
        try:
            switch.write(wanted)
        except (TypeError, RuntimeError, ValueError) as error:
            s.throw_native(error)
    s.modes.changed.update((switch.key, *switch.also))
    now = wanted if switch.silent else READERS[switch.key]()
    s.modes.switched.setdefault(switch.key, Turned(switch, before, before)).now = now
    if switch.in_graph(s):
        s.state_node(switch.write, wanted)


def refuse_operators(s: Session) -> None:
    """Called where an operator is recorded."""
    for turned in s.modes.switched.values():
        if turned.now != turned.before and not (turned.switch.in_graph(s) or turned.switch.silent):
            s.unsupported(
                "setting-changed", f"operators after a change of the setting {turned.switch.key!r} in the same graph"
            )


def refuse_hooks(s: Session) -> None:
    """Called where the program puts hooks on saved tensors in force."""
    turned = s.modes.switched.get(HOOKS_DISABLED)
    if turned is not None and turned.now is not None:
        s.unsupported("setting-changed", "hooks on saved tensors are disabled in the same graph")


def put_back(s: Session) -> None:
    """After the capture, settings are as they were before it."""
    for turned in s.modes.switched.values():
        if turned.now != turned.before and not turned.switch.silent:
            turned.switch.write(turned.before)


def leave(s: Session, rebuilder: Rebuilder) -> list[str]:
    """Where the graph ends: nodes that turn back what nodes have turned, and lines that turn all of it."""
    found = [turned for turned in s.modes.switched.values() if turned.now != turned.before]
    for turned in found:
        if turned.switch.in_graph(s):
            s.state_node(turned.switch.write, turned.before)
    return [f"{rebuilder.known(turned.switch.write)}({rebuilder.known(turned.now)})" for turned in found]
