"""`getattr`, `setattr` and the like, and the methods of `object` that they end at."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from dovetail.capture.containers import varying_keys
from dovetail.capture.interpreter.tail_calls import OPERATOR, of_attribute, protocol, setter
from dovetail.capture.library.python.builtins import unless
from dovetail.capture.polyfills.protocols import discard, exists, fetch_or
from dovetail.capture.tables.known_callables import INLINE, known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import FunctionValue, PreparedCall
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.objects import ModuleValue, ObjectValue


def _name(s: Session, value: Value) -> str:
    """The name of an attribute, as the built-in functions take it."""
    if not issubclass(value.cls, str):
        s.throw(TypeError, f"attribute name must be string, not {value.cls.__name__!r}")
    return value.native()


@known(getattr)
def _getattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = varying_keys.attribute(s, args[0], args[1])
    if found is not None:
        return found
    name, awaited = _name(s, args[1]), _awaited(s, of_attribute, args)
    if len(args) == 2:
        s.frames[-1].awaits = awaited
        return s.get_attr(args[0], name)
    if awaited is not None:
        return protocol(s, fetch_or, [args[0], Const(name), args[2]], True)
    found = unless(AttributeError, lambda: s.get_attr(args[0], name))
    return args[2] if found is None else found


@known(hasattr)
def _hasattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name, awaited = _name(s, args[1]), _awaited(s, of_attribute, args)
    if awaited is not None:
        return protocol(s, exists, [args[0], Const(name)], True)
    return boolean(unless(AttributeError, lambda: s.get_attr(args[0], name)) is not None)


@known(setattr)
def _setattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name, awaited = _name(s, args[1]), _awaited(s, setter, args)
    if awaited is not None:
        function, given = awaited
        return protocol(s, discard, [PreparedCall(s.wrap(function, None), [*given, args[2]], {})], True)
    s.set_attr(args[0], name, args[2])
    return NONE


def _awaited(s: Session, find: Any, args: Args) -> Any:
    """What the attribute's function is, if the running instruction does nothing else than calling the built-in one."""
    instruction = s.awaited() is OPERATOR
    return find(s, args[0], _name(s, args[1])) if instruction else None


known(object.__setattr__)(lambda s, args, kwargs: s.object_set_attr(args[0], _name(s, args[1]), args[2]) or NONE)
known(delattr)(lambda s, args, kwargs: s.del_attr(args[0], _name(s, args[1])) or NONE)
known(object.__delattr__)(lambda s, args, kwargs: s.object_del_attr(args[0], _name(s, args[1])) or NONE)
known(object.__getattribute__)(lambda s, args, kwargs: s.object_get_attr(args[0], _name(s, args[1])))


@known(torch.nn.Module.__getattr__)
def _module_getattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.module_member(args[0], args[1].native()) if isinstance(args[0], ModuleValue) else INLINE


def _no_frame(s: Session, name: str) -> NoReturn:
    s.unsupported("frame-reader", f"native code calls {name}(), which looks at the frame around that")


@known(vars)
def _vars(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        _no_frame(s, "vars")
    return s.get_attr(args[0], "__dict__")


@known(dir)
def _dir(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        _no_frame(s, "dir")
    value = args[0]
    if isinstance(value, ObjectValue) and type(s.static(value.cls, "__dir__")) is not type(_dir):
        own = value.attr_names(s) if value.cls.__dictoffset__ or isinstance(value, FunctionValue) else []
        return ListValue([Const(n) for n in sorted({*dir(value.cls), *own})])
    return ListValue([Const(n) for n in dir(value.native())])
