"""Calling an `nn.Module`: straight to `forward` while no hook is registered."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as torch_module

from dovetail.capture.values.base import Value
from dovetail.capture.values.objects import ModuleValue, real_dict
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Global

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
PLAIN_CALL = torch.nn.Module.__call__


def call_module(s: Any, value: ModuleValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`value(*args, **kwargs)` with hooks, or `forward` directly when there are none.

    Each module called relies on its four hook tables being empty, and once on the global ones.
    """
    method = s.static(value.cls, "__call__")
    if method is PLAIN_CALL:
        own = real_dict(value.real)
        if not any(own[h] for h in HOOKS) and not any(getattr(torch_module, h) for h in GLOBAL_HOOKS):
            for hook in HOOKS:
                s.guard(Attr(value.source, hook), GuardKind.LENGTH, 0)  # type: ignore[arg-type]
            for hook in GLOBAL_HOOKS:
                s.guard(Global(hook, torch_module.__name__), GuardKind.LENGTH, 0)
            return s.get_attr(value, "forward").call(s, args, kwargs)
        return s.get_attr(value, "_call_impl").call(s, args, kwargs)
    if hasattr(value.cls, "_dovetail_dispatcher"):  # a compiled module inside another is traced as its original
        original = s.wrap(value.real._orig_mod, Attr(value.source, "_orig_mod"))  # type: ignore[arg-type]
        return call_module(s, original, args, kwargs)
    return s.find_special(value, "__call__").call(s, args, kwargs)


