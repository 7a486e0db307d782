"""Iteration and unpacking."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

from dovetail.capture.containers.module_hooks import listed
from dovetail.capture.process import unguarded_facts
from dovetail.capture.values.base import MISSING, Const, Raised, Session, Value
from dovetail.capture.values.callables import ClassValue, KnownValue
from dovetail.capture.values.containers import DictValue, SequenceValue, TupleValue, ViewValue
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.iterators import (
    WALKS,
    ConstIterator,
    DictIterator,
    Indexing,
    IteratorValue,
    NativeIterator,
    SetIterator,
    walk,
)
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import TensorValue

FUNCTION = type(lambda: None)


def iterate(s: Session, value: Value) -> Value:
    """`iter(value)`."""
    if isinstance(value, IteratorValue):
        return value
    if type(s.static(value.cls, "__iter__")) is not FUNCTION or isinstance(value, TensorValue):
        native = _native_iterator(s, value)
        if native is not None:
            return native
    method = s.find_special(value, "__iter__")
    if method is not None:
        found = s.call(method)
        if not isinstance(found, IteratorValue) and s.static(found.cls, "__next__") is MISSING:
            s.throw(TypeError, f"iter() returned non-iterator of type {found.cls.__name__!r}")
        return found
    if s.static(value.cls, "__iter__") is MISSING and s.find_special(value, "__getitem__") is not None:
        return Indexing(value)
    return s.throw(TypeError, f"{value.cls.__name__!r} object is not iterable")


def _native_iterator(s: Session, value: Value) -> Value | None:
    kind = next((kind for kind in type(value).__mro__ if kind in ITERATORS), None)
    return ITERATORS[kind](s, value) if kind is not None else None


def _walk_native(s: Session, value: Value) -> Value:
    walker = WALKS.get(type(value))
    walked = None if walker is None else walker(s, value)
    if walked is not None:
        return walked
    native = value.native()
    try:
        items = iter(native)
    except TypeError as error:
        return s.throw_native(error)
    if isinstance(native, (str, bytes, range)):
        return ConstIterator(s, native)
    if isinstance(native, enum.EnumMeta):
        unguarded_facts.ask(s, tuple, native)
    return NativeIterator(s.from_native(item) for item in items)


def _key(s: Session, base: DictValue, key: Any) -> Value:
    return base.entries[key][0]


def _item(s: Session, base: DictValue, key: Any) -> Value | None:
    return base.get(s, key)


def _pair(s: Session, base: DictValue, key: Any) -> Value:
    return TupleValue((base.entries[key][0], base.get(s, key)))


PICK = {"keys": _key, "values": _item, "items": _pair}


def _rows(s: Session, value: TensorValue) -> list[Value]:
    if value.fake.dim() == 0:
        s.throw(TypeError, "iteration over a 0-d tensor")
    rows = s.torch_method("unbind", [value, Const(0)], {})
    assert isinstance(rows, SequenceValue)
    return rows.all(s)


ITERATORS: dict[type, Callable[[Session, Any], Value]] = {
    SequenceValue: lambda s, value: walk(value),
    DictValue: lambda s, value: DictIterator(value, value, "keys", _key, False),
    SetValue: lambda s, value: SetIterator(value, value.ordered(s)),
    ViewValue: lambda s, value: DictIterator(value, value.base, value.kind, PICK[value.kind], False),
    NamespaceValue: lambda s, value: NativeIterator(iter([k for k, _ in value.pairs(s)]), type(iter({}))),
    TensorValue: lambda s, value: walk(TupleValue(_rows(s, value))),
    **dict.fromkeys((Const, ClassValue, KnownValue), _walk_native),
}


def step(s: Session, iterator: Value) -> Value | None:
    """`next(iterator)`; None when it is exhausted."""
    if isinstance(iterator, IteratorValue):
        return iterator.step(s)
    try:
        return step_or_raise(s, iterator)
    except Raised as raised:
        if raised.value.cls is StopIteration:
            return None
        raise


def step_or_raise(s: Session, iterator: Value) -> Value:
    """`next(iterator)` of a user's iterator."""
    method = s.find_special(iterator, "__next__")
    if method is None:
        return s.throw(TypeError, f"{iterator.cls.__name__!r} object is not an iterator")
    if type(s.static(iterator.cls, "__next__")) is not FUNCTION:
        return s.unsupported("outside-iterator", f"a {iterator.cls.__name__} from outside is advanced")
    return s.call(method)


def each(s: Session, value: Value) -> Iterator[Value]:
    """The items one by one, for what has an effect after each: an error may come after some."""
    iterator = iterate(s, value)
    while (item := step(s, iterator)) is not None:
        yield item


def unpack(s: Session, value: Value) -> list[Value]:
    """`list(value)` as a Python list that the caller may keep."""
    if isinstance(value, SequenceValue) and type(s.static(value.cls, "__iter__")) is not FUNCTION:
        return list(value.all(s))
    hooks = listed(s, value) if isinstance(value, ViewValue) else None
    if hooks is not None:
        return hooks
    iterator = iterate(s, value)
    out = []
    while (item := step(s, iterator)) is not None:
        out.append(item)
    return out


