"""What containers are asked for: length, membership, items and slices, to read, to store and to delete.

As with operators, a native answer comes first, then a graph operation, then Python's special methods.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import Any

import torch

from dovetail.capture.containers import varying_keys
from dovetail.capture.containers.iteration import PICK
from dovetail.capture.interpreter.tail_calls import protocol
from dovetail.capture.numbers import dispatch
from dovetail.capture.outside import stable_arguments
from dovetail.capture.polyfills.protocols import ask, contain
from dovetail.capture.protocols.operators import native_call
from dovetail.capture.tensors import literals, torch_function, varying_slices
from dovetail.capture.values.base import MISSING, Const, NotNative, Session, Value, boolean
from dovetail.capture.values.callables import ClassValue, KnownValue
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, SliceValue, TupleValue, ViewValue
from dovetail.capture.values.descriptors import borrowed
from dovetail.capture.values.iterators import ConstIterator, DequeIterator, DictIterator, ReverseIterator
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.source import LENGTH, Computed


def _unread_length(s: Session, value: Any) -> Value:
    """A number like any other from outside: one that changes is an input of the entry."""
    span = value.span
    before: Any = s.wrap(len(span.real), Computed(LENGTH, (span.source,)))
    more = len(value.head) + len(value.tail) - span.taken + span.grown
    if not more:
        return before
    return dispatch.binary(s, "add", before, Const(more)) or Const(before.value + more)


def length(s: Session, value: Value, tail: bool = False) -> Value:
    """`len(value)`; `tail`: is that the result of the running instruction?"""
    kind = type(value)
    if isinstance(value, SequenceValue) and value.divisible:
        return _unread_length(s, value)
    if isinstance(value, SequenceValue) and not _overrides(s, value, "__len__"):
        return Const(len(value.items))
    if isinstance(value, (DictValue, SetValue)) and not _overrides(s, value, "__len__"):
        return varying_keys.count(s, value) or Const(len(value.entries))
    if kind is ViewValue:
        return varying_keys.count(s, value.base) or Const(len(value.base.entries))  # type: ignore[attr-defined]
    if isinstance(value, Const):
        return dispatch.call(s, len, [value]) or native_call(s, len, value.native())
    method = s.find_special(value, "__len__")
    if method is None:
        return s.throw(TypeError, f"object of type {value.cls.__name__!r} has no len()")
    return protocol(s, ask, [method, value, Const("__len__")], tail)


def _overrides(s: Session, value: ObjectValue, name: str) -> bool:
    """Does a Python class in the MRO replace the built-in method?"""
    static = s.static(value.cls, name)
    return type(static).__name__ == "function" or borrowed(static, name)


def contains(s: Session, container: Value, item: Value, wanted: bool = True, *, tail: bool = False) -> bool:
    """Does `item in container` have the truth `wanted`? `tail`: is that the result of the running instruction?"""
    return _contains(s, container, item, wanted, tail) is wanted


def _contains(s: Session, container: Value, item: Value, wanted: bool, tail: bool) -> bool:
    if isinstance(container, (DictValue, SetValue)) and not _overrides(s, container, "__contains__"):
        return varying_keys.holds(s, container, item)
    if isinstance(container, ViewValue) and container.kind == "keys":
        return varying_keys.holds(s, container.base, item)
    if isinstance(container, Const) and isinstance(item, Const):
        made = dispatch.call(s, str.__contains__, [container, item])
        if made is not None:
            return bool(made.native())
        return bool(native_call(s, operator.contains, container.value, item.value).native())
    if isinstance(container, Const) and issubclass(container.cls, str) and not issubclass(item.cls, str):
        s.throw(TypeError, f"'in <string>' requires string as left operand, not {item.cls.__name__}")
    method = s.find_special(container, "__contains__")
    if method is not None and container.cls is not range:
        if not isinstance(container, SequenceValue) or _overrides(s, container, "__contains__"):
            found = protocol(s, contain, [method, item, boolean(wanted)], tail)
            return s.truth(found) is wanted
    iterator = s.iterate(container)
    while (other := s.step(iterator)) is not None:
        if s.equal(other, item):
            return True
    return False


def get_item(s: Session, container: Value, index: Value) -> Value:
    """`container[index]`."""
    if isinstance(container, SequenceValue) and not _overrides(s, container, "__getitem__"):
        return sequence_item(s, container, index)
    if isinstance(container, DictValue) and not _overrides(s, container, "__getitem__"):
        return dict_item(s, container, index)
    if isinstance(container, TensorValue):
        return varying_slices.read(s, container, index) or s.torch_call(operator.getitem, [container, index], {})
    if isinstance(container, Const):
        try:
            return native_call(s, operator.getitem, container.value, stable_arguments.native(s, index))
        except NotNative:
            pass
    if isinstance(container, ClassValue):
        return _class_item(s, container, index)
    if getattr(container.cls, "__module__", "") == "typing" and getattr(container, "real", MISSING) is not MISSING:
        return native_call(s, operator.getitem, container.native(), index.native())
    method = s.find_special(container, "__getitem__")
    if method is None:
        if isinstance(container, KnownValue):
            return native_call(s, operator.getitem, container.real, index.native())
        return s.throw(TypeError, f"{container.cls.__name__!r} object is not subscriptable")
    return s.call(method, index)


def _class_item(s: Session, container: ClassValue, index: Value) -> Value:
    """`list[int]`, `SomeEnum["NAME"]`."""
    try:
        return native_call(s, operator.getitem, container.real, index.native())
    except NotNative:
        return s.unsupported("class-subscript", f"{container.real.__name__}[...] with a value made inside")


def sequence_item(s: Session, container: SequenceValue, index: Value) -> Value:
    """The same of a list, tuple or deque."""
    if isinstance(index, SliceValue):
        return _sequence_slice(s, container, index)
    found = varying_keys.item(s, container, index)
    if found is not None:
        return found
    position = as_index(s, index)
    part = container.place(position)
    if not -len(part) <= position < len(part):
        base = "tuple" if isinstance(container, TupleValue) else container.cls.__name__
        s.throw(IndexError, f"{base} index out of range")
    return container.at(s, position)


def _sequence_slice(s: Session, container: SequenceValue, index: SliceValue) -> Value:
    kind, cls = (TupleValue, tuple) if isinstance(container, TupleValue) else (ListValue, list)
    if issubclass(container.cls, deque):
        return s.throw(TypeError, "sequence index must be integer, not 'slice'")
    span = varying_keys.part(s, container, index)
    items = varying_keys.items(s, container, index) if span is None else []
    if items is not None:
        made = kind(items)
        made.span = span
        return made
    try:
        wanted = index.native()
    except NotNative:
        return s.unsupported("tensor-index", "slicing a Python sequence with a tensor")
    bounds = wanted.start, wanted.stop
    if wanted.step is None and all(bound is None or type(bound) is int for bound in bounds):
        parts = container.cut(*bounds)
        if parts is not None:
            made = kind(parts[0])
            made.span, made.tail = container.span.copy() if parts[1] else None, parts[2]  # type: ignore[union-attr]
            if not parts[1]:
                made.items = [*parts[0], *parts[2]]
            return made
    try:
        chosen = range(len(container.items))[wanted]
    except (TypeError, ValueError) as error:
        return s.throw_native(error)
    return kind([container.at(s, k) for k in chosen], container.cls if container.cls.__name__ == "Size" else cls)


def as_index(s: Session, index: Value, words: str = "list indices must be integers or slices, not {}") -> int:
    """`words` for what is none, with its type's name."""
    if isinstance(index, Const):
        if not hasattr(type(index.value), "__index__"):
            s.throw(TypeError, words.format(type(index.value).__name__))
        return operator.index(index.value)
    if isinstance(index, TensorValue):
        if (known := literals.integer(s, index)) is not None:
            return known
        return s.unsupported("tensor-index", "a tensor is used as the index of a Python sequence")
    return int(indexed_by(s, index, words).native())


NO_INTEGER = "{!r} object cannot be interpreted as an integer"


def indexed_by(s: Session, value: Value, words: str = NO_INTEGER) -> Value:
    """What an object's `__index__` gives."""
    method = s.find_special(value, "__index__")
    if method is None:
        return s.throw(TypeError, words.format(value.cls.__name__))
    found = s.call(method)
    if not issubclass(found.cls, int):
        s.throw(TypeError, f"__index__ returned non-int (type {found.cls.__name__})")
    return found


def dict_item(s: Session, container: DictValue, index: Value) -> Value:
    """The same of a dictionary, whose class may make what is missing."""
    found = varying_keys.entry(s, container, index)
    if found is not None:
        return found
    missing = s.find_special(container, "__missing__")
    if container.default_factory is not None:
        if isinstance(container.default_factory, Const):
            s.throw(KeyError, index)
        made = s.call(container.default_factory)
        container.put(s, index, made)
        return made
    if missing is not None and type(s.static(container.cls, "__missing__")).__name__ == "function":
        return s.call(missing, index)
    return s.throw(KeyError, index)


def set_item(s: Session, container: Value, index: Value, value: Value) -> None:
    """`container[index] = value`."""
    if isinstance(container, TensorValue):
        if _fills(s, container, index, value):
            s.torch_method("masked_fill_", [container, index, value], {})
        elif not varying_slices.store(s, container, index, value):
            s.torch_call(operator.setitem, [container, index, value], {})
        return
    if isinstance(container, DictValue) and not _overrides(s, container, "__setitem__"):
        container.put(s, index, value)
        return
    if isinstance(container, ListValue) and not _overrides(s, container, "__setitem__"):
        sequence_store(s, container, index, value)
        return
    method = s.find_special(container, "__setitem__")
    if method is None:
        s.throw(TypeError, f"{container.cls.__name__!r} object does not support item assignment")
    s.call(method, index, value)


def _fills(s: Session, container: TensorValue, index: Value, value: Value) -> bool:
    """A mask without dimensions is for the whole tensor; PyTorch's own assignment would read it."""
    mask = isinstance(index, TensorValue) and index.fake.dtype is torch.bool and index.fake.dim() == 0
    mask = mask and not torch_function.active(s, [container, index])
    return mask and container.fake.is_floating_point() and isinstance(value, Const) and value.cls in (int, float)


def sequence_store(s: Session, container: ListValue, index: Value, value: Value | None) -> None:
    """Assign to (or, with None, delete) an item or a slice of a list."""
    if isinstance(index, SliceValue) and value is not None:
        value = ListValue(s.unpack(value))
    if varying_keys.assign(s, container, index, value):
        mark(s, container, moves=value is None)
        return
    try:
        place: Any = index.native() if isinstance(index, SliceValue) else as_index(s, index)
        part = container.items if isinstance(index, SliceValue) else container.place(place)
        if value is None:
            del part[place]
        else:
            part[place] = value.items if isinstance(index, SliceValue) else value  # type: ignore[attr-defined]
    except (IndexError, ValueError) as error:
        if issubclass(container.cls, deque):
            s.throw(IndexError, "deque index out of range")
        s.throw_native(error)
    mark(s, container, moves=value is None)


def mark(s: Session, container: SequenceValue, moves: bool = True) -> None:
    """The list has changed; if it came from outside, its new state is replayed."""
    container.changed = True
    container.moves += moves
    s.effects.touch(container)


def del_item(s: Session, container: Value, index: Value) -> None:
    """`del container[index]`."""
    if isinstance(container, DictValue) and not _overrides(s, container, "__delitem__"):
        if not varying_keys.holds(s, container, index):
            s.throw(KeyError, index)
        varying_keys.remove_entry(s, container, index)
    elif isinstance(container, ListValue) and not _overrides(s, container, "__delitem__"):
        sequence_store(s, container, index, None)
    else:
        method = s.find_special(container, "__delitem__")
        if method is None:
            s.throw(TypeError, f"{container.cls.__name__!r} object doesn't support item deletion")
        s.call(method, index)


def backwards(s: Session, value: Value) -> Value:
    """`reversed(value)` of what has no method for it in Python."""
    if isinstance(value, (DictValue, ViewValue)):
        base, kind = (value.base, value.kind) if isinstance(value, ViewValue) else (value, "keys")
        return DictIterator(value, base, kind, PICK[kind], True)
    if isinstance(value, SequenceValue):
        return DequeIterator(value, True) if issubclass(value.cls, deque) else ReverseIterator(value, len(value.items))
    if isinstance(value, Const) and value.cls is range:
        return ConstIterator(s, value.native()[::-1])
    if s.find_special(value, "__getitem__") is None:
        s.throw(TypeError, f"{value.cls.__name__!r} object is not reversible")
    return ReverseIterator(value, s.length(value).native())
