"""Attributes of classes and of `super()`, read and stored."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dovetail.capture.outside.definitions import rely_on_class
from dovetail.capture.process import unguarded_facts
from dovetail.capture.process.trusted_code import HEAP_TYPE, trusted_class
from dovetail.capture.protocols.attributes import (
    BINDERS,
    FUNCTION,
    MODULE_GETATTR,
    bind_descriptor,
    is_data_descriptor,
    stored,
)
from dovetail.capture.values.base import MISSING, NONE, Const, NotNative, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue, MethodValue, SuperValue
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.descriptors import ClassStore, Placeholder, kind_of
from dovetail.capture.values.objects import ModuleValue
from dovetail.ir.source import Attr


def class_get_attr(s: Session, value: ClassValue, name: str) -> Value:
    """`cls.name`: the metaclass, then the class and its bases."""
    cls = value.real
    special = CLASS_SPECIAL.get(name)
    if special is not None:
        if not trusted_class(cls) and cls not in s.classes.made:
            unguarded_facts.datum(s, getattr, cls, name, getattr(cls, name))
        return special(s, cls)
    meta = s.static(type(cls), name)
    static = s.static(cls, name)
    if meta is not MISSING and is_data_descriptor(meta):
        if isinstance(meta, property):
            return s.call(s.wrap(meta.fget, None), value)
        return _of_type(s, cls, name)
    if static is MISSING:
        return _of_metaclass(s, value, meta, name)
    return _of_class(s, value, static, name)


def _of_type(s: Session, cls: type, name: str) -> Value:
    """What Python keeps about each class. Some have none: `__abstractmethods__`."""
    try:
        found = getattr(cls, name)
    except AttributeError as error:
        s.throw_native(error)
    return s.from_native(found)


def _of_metaclass(s: Session, value: ClassValue, meta: Any, name: str) -> Value:
    """What the class itself lacks."""
    cls = value.real
    if meta is not MISSING:
        return bind_descriptor(s, value, meta, name)
    fallback = s.static(type(cls), "__getattr__")
    if type(fallback) is FUNCTION and not (name[:2] == "__" and hasattr(type, name)):
        return s.call(s.wrap(fallback, None), value, Const(name))
    if cls not in s.classes.stores and hasattr(cls, name):
        return s.wrap(getattr(cls, name), None)
    return s.throw(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")


def _of_class(s: Session, value: ClassValue, static: Any, name: str) -> Value:
    """What `static`, found in the class or a base, gives for the class."""
    cls, kind = value.real, type(static)
    if kind is classmethod:
        return MethodValue(s.wrap(static.__func__, None), value)
    if kind is staticmethod:
        return s.wrap(static.__func__, None)
    if kind is types.ClassMethodDescriptorType or kind is types.BuiltinFunctionType:
        return s.wrap(getattr(cls, name), None)
    getter = s.static(kind_of(static), "__get__")
    if type(getter) is FUNCTION:
        return s.call(s.wrap(getter, None), s.wrap(static, None), NONE, value)
    if kind in BINDERS or hasattr(kind, "__get__") or cls in s.classes.made or stored(s, cls, name):
        return s.wrap(static, None)
    if trusted_class(cls):
        unguarded_facts.datum(s, getattr, cls, name, static)
        return s.wrap(static, None)
    return s.wrap(static, Attr(value.source or s.bind(cls), name))


def _table_of_class(s: Session, cls: type) -> Value:
    constant = trusted_class(cls) or cls in s.classes.made
    return s.wrap(cls.__dict__, None if constant else Attr(s.bind(cls), "__dict__"))


CLASS_SPECIAL: dict[str, Callable[[Any, type], Value]] = {
    "__class__": lambda s, cls: s.wrap(type(cls), None),
    "__dict__": lambda s, cls: _table_of_class(s, cls),
    "__name__": lambda s, cls: Const(cls.__name__),
    "__qualname__": lambda s, cls: Const(cls.__qualname__),
    "__module__": lambda s, cls: Const(cls.__module__),
    "__mro__": lambda s, cls: TupleValue([s.wrap(c, None) for c in cls.__mro__]),
    "__bases__": lambda s, cls: TupleValue([s.wrap(c, None) for c in cls.__bases__]),
    "__doc__": lambda s, cls: Const(cls.__doc__),
}


def super_get_attr(s: Session, value: SuperValue, name: str) -> Value:
    """`super().name`: the classes behind the start, in the order of the owner."""
    mro = value.owner.__mro__
    rest = mro[mro.index(value.start) + 1 :]
    for cls in rest:
        if name in cls.__dict__:
            static = cls.__dict__[name]
            rely_on_class(s, rest, name, static)
            if isinstance(value.receiver, ClassValue) and value.owner is value.receiver.real:
                return _super_on_class(s, value, static)
            if static is MODULE_GETATTR and isinstance(value.receiver, ModuleValue):
                return MethodValue(KnownValue(MODULE_GETATTR), value.receiver)
            return bind_descriptor(s, value.receiver, static, name)
    return s.throw(AttributeError, f"'super' object has no attribute {name!r}")


def _super_on_class(s: Session, value: SuperValue, static: Any) -> Value:
    if type(static) is classmethod:
        return MethodValue(s.wrap(static.__func__, None), value.receiver)
    if type(static) is staticmethod:
        return s.wrap(static.__func__, None)
    if type(static) is types.ClassMethodDescriptorType:
        return MethodValue(s.wrap(static, None), value.receiver)
    return s.wrap(static, None)


# ---------------------------------------------------------------- stand-ins

# Real objects that stand in a real class for traced values.


NATIVE_NAMES = frozenset(("__annotations__", "__slots__", "__match_args__", "__doc__", "__module__", "__qualname__"))


def stand_in(s: Session, value: Value, name: str = "") -> Any:
    """A real object that takes the value's place in a real class."""
    if isinstance(value, FunctionValue) and value.real is MISSING:
        return _function(s, value)
    if isinstance(value, (Const, KnownValue, FunctionValue, TupleValue)) or name in NATIVE_NAMES:
        try:
            return value.native()
        except NotNative:
            pass
    return _kept(s, Placeholder(value), value)


def _kept(s: Session, made: Any, value: Value) -> Any:
    s.objects.by_identity[id(made)] = value
    s.objects.keep.append(made)
    return made


def _function(s: Session, value: FunctionValue) -> Any:
    found = s.classes.stand_ins.get(id(value))
    if found is None:
        cells = tuple(types.CellType() for _ in value.code.co_freevars)
        found = types.FunctionType(value.code, value.globals, value.name, None, cells)
        found.__defaults__ = tuple(stand_in(s, d) for d in value.defaults) or None
        found.__kwdefaults__ = {k: stand_in(s, d) for k, d in value.kwdefaults.items()} or None
        annotations = value.annotations
        if isinstance(annotations, TupleValue):
            flat = [stand_in(s, a) for a in annotations.all(s)]
            found.__annotations__ = dict(zip(flat[::2], flat[1::2]))
        found.__dict__.update({key: stand_in(s, value.attrs[key]) for key in value.written})
        s.classes.stand_ins[id(value)] = _kept(s, found, value)
        s.objects.keep.append(value)
    return found


# ---------------------------------------------------------------- stores


def class_set_attr(s: Session, value: ClassValue, name: str, new: Value | None) -> None:
    """`cls.name = new`; None deletes."""
    cls = value.real
    if not cls.__flags__ & HEAP_TYPE:
        s.throw(TypeError, f"cannot set {name!r} attribute of immutable type {cls.__name__!r}")
    if new is None and name not in cls.__dict__ and s.static(cls, name) is MISSING:
        s.throw(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")
    if cls in s.classes.made:
        if new is None:
            type.__delattr__(cls, name)
        else:
            type.__setattr__(cls, name, stand_in(s, new, name))
    else:
        store = s.classes.stores.get(cls)
        if store is None:
            store = s.classes.stores[cls] = ClassStore(cls)
        store.table[name] = MISSING if new is None else stand_in(s, new)
        s.effects.touch(store)
    s.classes.forget()
