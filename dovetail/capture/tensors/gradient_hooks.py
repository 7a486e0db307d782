"""Hooks on gradients that the program registers: PyTorch's engine calls them, so it runs the graph.

    h = y.register_hook(lambda g: g * z)    ->      %h = Hook("register_hook")(%y); _o[0].function = <lambda>
                                                    return _o[0].handle

Where graphs may break, one ends before the hook instead, so that both sides of it are compiled; not where the graph has
used the tensor already, since gradients from there would pass the hook by.

A function that exists before the graph runs is called as it is. Any other is made by the residual, which knows what it
closes over: until then the hook is a `Relay`, so no backward pass may come before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.fx
from torch.utils.hooks import RemovableHandle

from dovetail.capture.values.base import MISSING, NONE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.capture.values.tensor import PLAIN, TensorValue, refuse_change
from dovetail.ir.guard import GuardKind
from dovetail.ops.calls.autograd_calls import Hook, remove_hook

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder


class HookHandle(Value):
    """What takes the hook away again. `hook`: the function that the residual makes, if it does."""

    __slots__ = ("hook", "node")
    cls = RemovableHandle

    def __init__(self, node: torch.fx.Node, hook: Value | None) -> None:
        super().__init__()
        self.node, self.hook = node, hook

    def get_attr(self, s: Session, name: str) -> Value:
        if name == "remove":
            return Removing(self)
        return s.unsupported(
            "graph-argument", f"the code uses {name!r} of the handle of a hook that is registered inside",
            "Register the hook outside the compiled function.",
        )


class Removing(Value):
    """`handle.remove`."""

    __slots__ = ("handle",)

    def __init__(self, handle: HookHandle) -> None:
        super().__init__()
        self.handle = handle

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        s.state_node(remove_hook, self.handle.node)
        return NONE


def register(s: Session, name: str, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """`value.name(hook)`."""
    refuse_change(s, value)
    hook = args[0] if args else kwargs.get("hook", NONE)
    if s.graph is not s.root or value.cls not in PLAIN or isinstance(hook, Const):
        return s.unsupported(
            "graph-argument", "a hook is registered in a function that is a graph of its own, or on a tensor subclass",
            "Register it outside the compiled function.",
        )
    _check(s, name, value)
    if s.ends.breaks and (value.origin is not None or not value.node.users):
        return s.unsupported(
            "gradient-hook", f"the code calls {name} of a tensor, and PyTorch would run a graph with a hook as it is",
            "Nothing: what comes before and what comes after are compiled. Hooks registered outside cost no graph.",
        )
    real = getattr(hook, "real", MISSING) if isinstance(hook, FunctionValue) else MISSING
    if real is not MISSING and hook.source is not None:
        s.guard(hook.source, GuardKind.ID, real)
    node = s.state_node(Hook(name, None if real is MISSING else real), value.node)
    made = HookHandle(node, hook if real is MISSING else None)
    s.gradients.hooks.append(made)
    return made


def _check(s: Session, name: str, value: TensorValue) -> None:
    """What PyTorch asks of the tensor."""
    if not value.fake.requires_grad:
        s.throw(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    leaf = value.fake.is_leaf if value.origin is None else value.origin.is_leaf
    if name == "register_post_accumulate_grad_hook" and not leaf:
        s.throw(RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors")


def refuse_unknown(s: Session) -> None:
    """Called before a backward pass inside the graph, which calls hooks that are there."""
    if any(handle.hook is not None for handle in s.gradients.hooks):
        s.unsupported(
            "graph-argument", "backward() calls a hook that uses what is computed here",
            "Give the hook what it needs from outside.",
        )


def lines(s: Session, rebuilder: Rebuilder) -> list[str]:
    """What gives hooks their functions once the graph has run."""
    return [
        f"{rebuilder.output(handle.node)}.function = {rebuilder.expr(handle.hook)}"
        for handle in s.gradients.hooks
        if handle.hook is not None
    ]
