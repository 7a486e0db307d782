"""Objects of native classes: the expression that makes one like it."""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail.capture.outside.surely_alive import held
from dovetail.capture.values.objects import ObjectValue

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder


def native_init(cls: type) -> Any:
    """The `__init__` in native code that the class's own ones end at."""
    inits = (base.__dict__.get("__init__") for base in cls.__mro__)
    return next(init for init in inits if init is not None and not isinstance(init, FunctionType))


AUTOMATIC = (types.GetSetDescriptorType, types.MemberDescriptorType)  # Python makes these for a class itself


def _partial(rebuilder: Rebuilder, value: ObjectValue) -> str:
    function, args, keywords = (rebuilder.expr(value.attrs[n]) for n in ("func", "args", "keywords"))
    return rebuilder.start(value, f"{rebuilder.known(value.cls)}({function}, *{args}, **{keywords})")


def _copied(rebuilder: Rebuilder, value: ObjectValue) -> str:
    return rebuilder.start(value, f"{rebuilder.known(copy.copy)}({rebuilder.known(value.made_by)})")


def _inference_mode(rebuilder: Rebuilder, value: ObjectValue) -> str:
    text = rebuilder.start(value, f"{rebuilder.known(value.cls)}({rebuilder.expr(value.attrs['mode'])})")
    rebuilder.attributes(value, text)  # what leaving undoes
    return text


def _reference(rebuilder: Rebuilder, value: ObjectValue) -> str:
    """Where the graph breaks, the residual must not keep alive what nothing else holds."""
    target = value.attrs["target"]
    if rebuilder.s.frames and not held(rebuilder.s, target):
        rebuilder.s.unsupported("weak-reference", f"whether {target.describe()} is still alive cannot be told")
    return rebuilder.start(value, f"{rebuilder.known(value.cls)}({rebuilder.expr(value.attrs['target'])})")


MAKERS: dict[type, Callable[[Rebuilder, ObjectValue], str]] = {
    functools.partial: _partial,
    torch.autocast: _copied,
    torch.inference_mode: _inference_mode,
    weakref.ref: _reference,
}
