"""What values are as keys of dictionaries and members of sets.

A key that compares by identity is the object outside, and the entry relies on which of those objects are one
(`aliasing.rely_on_separate_keys`). A number is its value, which is guarded. A class that defines `__hash__` is asked.
"""

from __future__ import annotations

import weakref
from types import NoneType
from typing import Any

from dovetail.capture.cpython import special_results
from dovetail.capture.outside.distinct_objects import rely_on_identity
from dovetail.capture.process.trusted_code import HEAP_TYPE
from dovetail.capture.values.array import ArrayValue
from dovetail.capture.values.base import MISSING, Const, NotNative, Session, Value
from dovetail.capture.values.callables import FunctionValue, KnownValue, MethodKey, MethodValue
from dovetail.capture.values.containers import SliceValue, TupleValue
from dovetail.capture.values.objects import ModuleValue, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import ChosenTensor, TensorValue, refuse_choice
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Bound


def hashable(s: Session, value: Value) -> Any:
    """The native dictionary key of a value; raises in the traced program if it has no hash."""
    if isinstance(value, FunctionValue) and value.source is not None:
        s.guard(value.source, GuardKind.ID, value.real)
    if isinstance(value, Const):
        if isinstance(value.value, float) and value.value != value.value:  # equal to nothing but the same object
            rely_on_identity(s, value, Const(value.value), True)
        return value.value
    if isinstance(value, ArrayValue) and value.scalar:
        raise NotNative(value)  # a number that differs from call to call
    if value.type.__hash__ is None:
        s.throw(TypeError, f"unhashable type: {full_name(value.type)!r}")
    if isinstance(value, MethodValue):
        bound = _identity(s, value.receiver)  # methods are equal where this is one object, whatever its class says
        return MethodKey((hashable(s, value.function), bound if isinstance(value.receiver, Const) else id(bound)))
    if isinstance(value, ObjectValue) and type(s.static(value.cls, "__hash__")).__name__ == "function":
        if not isinstance(value, TensorValue):
            return UserKey.of(s, value)
    if isinstance(value, TupleValue):
        return tuple(hashable(s, item) for item in value.all(s))
    if isinstance(value, SliceValue):  # where Python lets it be a key
        return slice(*[hashable(s, part) for part in value.parts()])
    return _reference(s, value) if value.cls is weakref.ref else _identity(s, value)


def member(s: Session, value: Value) -> Any:
    """The same for what a set is asked for: there a set stands for a frozenset of its items."""
    if isinstance(value, SetValue) and value.type.__hash__ is None:
        return value.key()
    return hashable(s, value)


def full_name(cls: type) -> str:
    """What CPython's messages call a class: one written in C has its module in its name."""
    heap = cls.__flags__ & HEAP_TYPE or cls.__module__ == "builtins"
    return cls.__name__ if heap else f"{cls.__module__}.{cls.__name__}"


def _identity(s: Session, value: Value) -> Any:
    if isinstance(value, ChosenTensor):
        refuse_choice(s, "uses a tensor as a key")
    if value.source is not None and is_object(value):
        s.objects.keys[id(value)] = value
    return value.key()


def _reference(s: Session, value: Any) -> Any:
    """Weak references are equal where their objects are. To one from outside it is a real one, and the entry relies on
    the object."""
    if isinstance(value, KnownValue):
        return value.key()
    target = value.attrs["target"]
    if target.cls.__eq__ is not object.__eq__:
        s.unsupported("weak-reference", f"a weak reference to {target.describe()} is looked up by its own equality")
    if getattr(target, "real", MISSING) is MISSING:
        return value
    identified(s, target)
    return weakref.ref(target.real)


def is_object(value: Any) -> bool:
    """Is it an object from outside that is not known by its identity?"""
    if isinstance(value, TensorValue):
        return value.origin is not None
    return isinstance(value, ObjectValue) and not isinstance(value, ModuleValue) and value.real is not MISSING


def identified(s: Session, value: Value) -> list[Value]:
    """The entry relies on which objects there are in a key: its hash is made of their addresses. Gives the objects."""
    if isinstance(value, TupleValue):
        return [found for item in value.all(s) for found in identified(s, item)]
    if isinstance(value, SliceValue):
        return [found for part in value.parts() for found in identified(s, part)]
    if isinstance(value, MethodValue):
        return identified(s, value.receiver)
    if is_object(value) and not isinstance(value, TensorValue) and not isinstance(value.source, (Bound, NoneType)):
        s.guard(value.source, GuardKind.ID, value.real)  # type: ignore[attr-defined]
    return [value]


#: What compares by a value that the entry knows.
_PLAIN = frozenset((bool, int, float, complex, str, bytes))


class UserKey:
    """The key of an object whose class defines `__hash__`; equality asks its `__eq__`."""

    __slots__ = ("session", "value", "hash")

    def __init__(self, session: Session, value: Value, number: int) -> None:
        self.session, self.value, self.hash = session, value, number

    @classmethod
    def of(cls, s: Session, value: Value) -> Any:
        found = s.call_special(value, "__hash__")
        return cls(s, value, special_results.result(s, value, "__hash__", found).native())

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UserKey):
            return bool(self.session.equal(self.value, other.value))
        if type(other) in _PLAIN:
            return bool(self.session.equal(self.value, Const(other)))
        if type(other).__eq__ is not object.__eq__:
            raise NotNative(self.value)  # what it holds is not guarded, nor is its code known
        return False


def set_entries(s: Session, values: Value) -> dict[Any, Value]:
    """What a set takes in from any iterable."""
    if isinstance(values, SetValue):
        return values.entries
    found: dict[Any, Value] = {}
    for item in s.unpack(values):
        found.setdefault(hashable(s, item), item)
    return found if values.cls is dict else _Listed(found)


class _Listed(dict[Any, Value]):
    """Entries that a set takes one by one; a dictionary's make it grow at once."""

    @property
    def order(self) -> list:
        return list(self)
