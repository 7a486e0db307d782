"""Calling a class: built-in types by table, exceptions, and classes written in Python.

`instantiate` follows `type.__call__`: `__new__`, then `__init__` when it gave an instance.
"""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from dovetail.capture.calling.calls import by_table, fold
from dovetail.capture.calling.whole_calls import make_tensor, makes_tensors
from dovetail.capture.cpython.native_arguments import fitted
from dovetail.capture.interpreter.tail_calls import protocol
from dovetail.capture.polyfills.protocols import construct
from dovetail.capture.tables.known_callables import FOLDED, KNOWN, STANDINS
from dovetail.capture.values.base import Args, Session, Value
from dovetail.capture.values.callables import ClassValue, PreparedCall
from dovetail.capture.values.containers import DictValue, ListValue, TupleValue
from dovetail.capture.values.objects import ExceptionValue, ObjectValue
from dovetail.capture.values.sets import SetValue

FUNCTION = types.FunctionType
ABSTRACT = 1 << 20


def call_class(s: Session, value: ClassValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`cls(*args, **kwargs)`: a handler, plain Python, the metaclass, or `instantiate`."""
    cls = value.real
    if cls in KNOWN or cls in STANDINS:
        return by_table(s, cls, args, kwargs)
    if cls in FOLDED or isinstance(cls, enum.EnumMeta):
        return fold(s, cls, args, kwargs)
    if makes_tensors(s, cls):
        return make_tensor(s, cls, args, kwargs)
    call = s.static(type(cls), "__call__")
    if type(call) is FUNCTION:
        return s.wrap(call, None).call(s, [value, *args], kwargs)
    return instantiate(s, value, args, kwargs)


def instantiate(s: Session, value: ClassValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What `type.__call__` does: `__new__` and, where that gives an instance, `__init__`."""
    cls = value.real
    instruction = s.awaited() is value
    new = s.static(cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    if type(new) is FUNCTION:
        made = s.wrap(new, None).call(s, [value, *args], kwargs)
        if not issubclass(made.cls, cls):
            return made
    elif new in KNOWN:
        made = KNOWN[new](s, [value, *args], kwargs)
    elif new not in ALLOCATORS and not FOLDED.isdisjoint(cls.__mro__):
        return fold(s, cls, args, kwargs)
    else:
        made = allocate(s, cls, new, args)
    init = s.static(cls, "__init__")
    if type(init) is FUNCTION:
        return protocol(s, construct, [PreparedCall(s.wrap(init, None), [made, *args], kwargs), made], instruction)
    if init is not object.__init__:
        _native_init(s, made, init, args, kwargs)
    elif (args or kwargs) and new is object.__new__:
        s.throw(TypeError, f"{cls.__name__}() takes no arguments")
    return made


def _native_init(s: Session, made: Value, init: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
    handler = KNOWN.get(init)
    if handler is not None:
        handler(s, *fitted(s, init, [made, *args], kwargs))
    elif not isinstance(made, (ExceptionValue, TupleValue)):
        s.unsupported("native-init", f"{made.cls.__name__} is initialised by native code")


def allocate(s: Session, cls: type, new: Any, args: list[Value]) -> Value:
    """A fresh instance of `cls` from a native `__new__`."""
    if cls.__flags__ & ABSTRACT and new is object.__new__:
        try:
            object.__new__(cls)
        except TypeError as error:
            s.throw_native(error)
    maker = ALLOCATORS.get(new)
    if maker is None:
        if issubclass(cls, BaseException):
            return ExceptionValue(cls, list(args))
        return s.unsupported("native-object", f"{cls.__name__} objects are made by native code")
    return maker(s, cls, args)


def _new_tuple(s: Session, cls: type, args: list[Value]) -> Value:
    return TupleValue(s.unpack(args[0]) if args else [], cls)


def _new_frozenset(s: Session, cls: type, args: list[Value]) -> Value:
    made = SetValue(cls)
    for item in s.unpack(args[0]) if args else []:
        made.add(s, item)
    return made


def _new_list(s: Session, cls: type, args: list[Value]) -> Value:
    return ListValue([], cls)


def _new_dict(s: Session, cls: type, args: list[Value]) -> Value:
    return DictValue(cls)


ALLOCATORS: dict[Any, Callable[[Session, type, Args], Value]] = {
    types.SimpleNamespace.__new__: lambda s, cls, args: ObjectValue(cls),
    object.__new__: lambda s, cls, args: ObjectValue(cls),
    list.__new__: _new_list,
    deque.__new__: _new_list,
    tuple.__new__: _new_tuple,
    set.__new__: lambda s, cls, args: SetValue(cls),
    frozenset.__new__: _new_frozenset,
    dict.__new__: _new_dict,
    defaultdict.__new__: _new_dict,
    OrderedDict.__new__: _new_dict,
    BaseException.__new__: lambda s, cls, args: ExceptionValue(cls, list(args)),
}

