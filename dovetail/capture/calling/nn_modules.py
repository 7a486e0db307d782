"""Calling an `nn.Module`: straight to `forward` while no hook is registered."""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from dovetail.capture.calling.lazy_modules import initialize
from dovetail.capture.interpreter.tail_calls import of_forward, of_method
from dovetail.capture.process.trusted_code import foreign
from dovetail.capture.values.base import Session, Value
from dovetail.capture.values.containers import DictValue
from dovetail.capture.values.objects import ModuleValue, real_dict
from dovetail.ir import marks
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
PLAIN_CALL = torch.nn.Module._wrapped_call_impl  # `__call__`, unless the program has replaced that
PEER_MODULE = ("torch._dynamo.eval_frame", "OptimizedModule")
SCRIPT_REMEDY = "Use the Python module or function that it was made from."


@cache
def scripted(cls: type) -> bool:
    """Is it a class of scripted modules?"""
    return any((c.__module__, c.__name__) == ("torch.jit._script", "ScriptModule") for c in cls.__mro__)


def _hooked(s: Session, value: ModuleValue) -> bool:
    """Has the module, or every module, a hook now? The traced program may have added or removed some."""
    own, shared = real_dict(value.real), torch_module.__dict__
    return any(_filled(s, own[h]) for h in HOOKS) or any(_filled(s, shared[h]) for h in GLOBAL_HOOKS)


def _filled(s: Session, table: dict[Any, Any]) -> bool:
    known = s.objects.by_identity.get(id(table))
    if isinstance(known, DictValue) and (known.unread is None or known.added):
        return bool(known.entries)
    return bool(table)


def _runs_plain(s: Session, value: ModuleValue) -> bool:
    """Is `forward` called between two graphs, by an instruction? Of a module's code there is one in `_call_impl`."""
    forward = s.static(value.cls, "forward")
    return isinstance(forward, FunctionType) and marks.runs_plain(forward)


def _rely_on_no_hooks(s: Session, value: ModuleValue) -> None:
    """A table that the traced program has read is guarded already, as it was at the call."""
    own, shared = real_dict(value.real), torch_module.__dict__
    for hook in HOOKS:
        if id(own[hook]) not in s.objects.by_identity:
            s.guard(Attr(value.source, hook), GuardKind.LENGTH, 0)  # type: ignore[arg-type]
    for hook in () if s.relied.unhooked else GLOBAL_HOOKS:
        if id(shared[hook]) not in s.objects.by_identity:
            s.guard(s.bind(shared, torch_module.__name__).item(hook), GuardKind.LENGTH, 0)
    s.relied.unhooked = True


def call_module(s: Session, value: ModuleValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`value(*args, **kwargs)` with hooks, or `forward` directly when there are none.

    Each module called relies on its four hook tables being empty, and once on the global ones.
    """
    if scripted(value.cls):
        s.unsupported("script-code", f"{value.describe()} is a ScriptModule: it does not run as Python", SCRIPT_REMEDY)
    initialize(s, value, args, kwargs)
    method = s.static(value.cls, "__call__")
    if method is PLAIN_CALL:
        if not _hooked(s, value) and not foreign(s.static(value.cls, "_call_impl")) and not _runs_plain(s, value):
            _rely_on_no_hooks(s, value)
            return s.get_attr(value, "forward").call(s, args, kwargs)
        return _instead_of_forward(s, value, s.get_attr(value, "_call_impl")).call(s, args, kwargs)
    if (value.cls.__module__, value.cls.__name__) == PEER_MODULE:  # compiled by torch.compile: its original is traced
        return call_module(s, _original(s, value), args, kwargs)
    if hasattr(value.cls, "_dovetail_dispatcher"):  # a compiled module inside another is traced as its original
        return call_module(s, _original(s, value), args, kwargs)
    call = s.find_special(value, "__call__")
    assert call is not None
    return _instead_of_forward(s, value, call).call(s, args, kwargs)


def _original(s: Session, value: ModuleValue) -> ModuleValue:
    original = s.wrap(value.real._orig_mod, Attr(value.source, "_orig_mod"))  # type: ignore[arg-type]
    assert isinstance(original, ModuleValue)
    return original


def _instead_of_forward(s: Session, value: ModuleValue, method: Value) -> Value:
    """If the module is what an instruction calls, so is the method."""
    frame = s.frames[-1] if s.frames else None
    if frame is not None and frame.awaits is not None and frame.awaits is of_forward(value.cls):
        frame.awaits = of_method(method)
    return method


