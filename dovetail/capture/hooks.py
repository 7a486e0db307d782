"""`tensor.register_hook(f)` of what the graph computes: PyTorch's engine calls `f` itself, so it runs the graph.

    y.register_hook(lambda g: g * 3)        ->      Hook(f)(%y)

The hook is a function that exists before the graph runs: it may close over nothing that the graph computes.
"""

from __future__ import annotations

from typing import Any

from torch.utils.hooks import RemovableHandle

from dovetail.capture.choosing import refuse_change
from dovetail.capture.marked import native
from dovetail.capture.values.base import NotNative, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ops.engine import Hook


class Handle(Value):
    """What takes the hook away again; nothing else is known of it."""

    cls = RemovableHandle

    def get_attr(self, s: Any, name: str) -> Value:
        return s.unsupported(  # type: ignore[no-any-return]
            "graph-argument", f"the code uses {name!r} of the handle of a hook that is registered inside",
            "Register the hook outside the compiled function.",
        )


def register(s: Any, value: TensorValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Of a tensor from outside the hook would stay: the graph ends there."""
    hook = args[0] if args else kwargs.get("hook")
    refuse_change(s, value)
    if value.origin is not None or not isinstance(hook, FunctionValue) or s.graph is not s.root:
        return s.unsupported(
            "graph-argument", "a hook is registered on a tensor from outside, or it is no function",
            "Register it outside the compiled function.",
        )  # type: ignore[no-any-return]
    if not value.fake.requires_grad:
        s.throw(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    try:
        function = native(hook)
    except NotNative:
        return s.unsupported(  # type: ignore[no-any-return]
            "graph-argument", "the hook uses what is computed here", "Give it what it needs from outside."
        )
    if hook.source is not None:
        s.guard(hook.source, GuardKind.ID, function)
    node = s.graph.call_function(Hook(function), (value.node,))
    node.meta.update(stack=s.stack(), mutates=True)
    return Handle()
