"""Stores to classes, and the real objects that stand in a real class for traced values."""

from __future__ import annotations

import types
from typing import Any

from dovetail.capture.values.base import MISSING, Const, NotNative, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.descriptors import ClassStore, Placeholder

NATIVE_NAMES = frozenset(("__annotations__", "__slots__", "__match_args__", "__doc__", "__module__", "__qualname__"))
HEAP_TYPE = 1 << 9


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
    s.classes.statics.clear()
