"""Methods of list, tuple, deque and torch.Size, by descriptor.

`super().append(...)` in a subclass, `list.append(x, 1)` and `x.append(1)` all arrive here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.containers import varying_keys
from dovetail.capture.containers.iteration import each
from dovetail.capture.library.python.ordering import sort_values
from dovetail.capture.numbers import input_numbers
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.protocols.operators import sequence_truth
from dovetail.capture.protocols.subscripts import NO_INTEGER, as_index, backwards, mark, sequence_item, sequence_store
from dovetail.capture.tables.known_callables import KNOWN, known, methods
from dovetail.capture.tables.operator_names import COMPARE
from dovetail.capture.values.base import NONE, NOT_IMPLEMENTED, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.containers import ListValue, SequenceValue, TupleValue
from dovetail.capture.values.deferred import joined
from dovetail.capture.values.iterators import walk
from dovetail.capture.values.objects import ObjectValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr

Method = Callable[..., Any]
ZERO, ONE, LAST = Const(0), Const(1), Const(-1)
CHANGING = (list, deque)
ALL = (list, tuple, deque)


@methods(list, "__init__")
def _list_init(s: Session, v: Any, values: Any = None) -> None:
    v.items = []
    if values is not None:
        _extend(s, v, values)


@methods(deque, "__init__")
def _deque_init(s: Session, v: Any, iterable: Any = None, maxlen: Any = NONE) -> None:
    v.maxlen = maxlen.native()
    v.items = []
    if iterable is not None:
        _extend(s, v, iterable)


def _trim(v: Any, left: bool = False) -> None:
    if v.maxlen is not None and len(v.items) > v.maxlen:
        v.items = v.items[: v.maxlen] if left else v.items[len(v.items) - v.maxlen :]


@known(deque)
def _deque(s: Session, args: Args, kwargs: Kwargs) -> Value:
    made = ListValue([], deque)
    _deque_init(s, made, *args, **kwargs)
    return made


@methods(CHANGING, "append")
def _append(s: Session, v: Any, value: Value) -> None:
    v.extend([value])
    mark(s, v)


@methods(CHANGING, "extend")
def _extend(s: Session, v: Any, values: Value) -> None:
    if not isinstance(values, SequenceValue):
        for value in each(s, values):
            _append(s, v, value)
        return
    found = s.unpack(values)
    v.extend(found)
    mark(s, v, moves=bool(found) and not _takes_none(s, v))


def _takes_none(s: Session, v: SequenceValue) -> bool:
    return v.maxlen == 0 and _maxlen(s, v).native() == 0


@methods(CHANGING, "__iadd__")
def _iadd(s: Session, v: SequenceValue, values: Value) -> Value:
    _extend(s, v, values)
    return v


def _maxlen(s: Session, v: SequenceValue) -> Value:
    if v.source is not None and issubclass(v.cls, deque):
        s.guard(Attr(v.source, "maxlen"), GuardKind.EQUAL, v.maxlen)
    return Const(v.maxlen)


NATIVE_ATTRIBUTES[(deque, "maxlen")] = _maxlen


@methods(deque, "extendleft")
def _extendleft(s: Session, v: Any, values: Value) -> None:
    for value in each(s, values) if not isinstance(values, SequenceValue) else s.unpack(values):
        if not _takes_none(s, v):
            _appendleft(s, v, value)


@methods(deque, "appendleft")
def _appendleft(s: Session, v: Any, value: Value) -> None:
    if v.divisible and v.fits(1, last=True):
        v.head.insert(0, value)
    else:
        v.items.insert(0, value)
        _trim(v, left=True)
    mark(s, v)


ARGUMENT = "'{}' object cannot be interpreted as an integer"


@methods(CHANGING, "pop")
def _pop(s: Session, v: Any, index: Value = LAST) -> Value:
    place = None if input_numbers.varies(index) else as_index(s, index, ARGUMENT)
    if not sequence_truth(s, v):
        s.throw(IndexError, "pop from an empty deque" if issubclass(v.cls, deque) else "pop from empty list")
    if place is None:
        known = varying_keys.remove(s, v, index, "pop index out of range")
        if known is not None:
            mark(s, v)
            return known
        place = as_index(s, index, ARGUMENT)
    part = v.place(place)
    if not -len(part) <= place < len(part):
        s.throw(IndexError, "pop index out of range")
    found = v.at(s, place)
    del part[place]
    mark(s, v)
    return found


methods(deque, "popleft")(lambda s, v: _pop(s, v, ZERO))


@methods(CHANGING, "insert")
def _insert(s: Session, v: Any, index: Value, value: Value) -> None:
    if varying_keys.insert(s, v, index, value):
        mark(s, v)
        return
    place = as_index(s, index, ARGUMENT)
    limit = _maxlen(s, v).native()
    if limit is not None and len(v.items) >= limit:
        s.throw(IndexError, "deque already at its maximum size")
    if v.divisible and type(place) is int and v.ensure(abs(place), place < 0):
        (v.head if place >= 0 else v.tail).insert(place, value)
    else:
        v.items.insert(place, value)
    mark(s, v)


@methods(CHANGING, "clear")
def _clear(s: Session, v: Any) -> None:
    moves = not issubclass(v.cls, deque) or sequence_truth(s, v)
    v.items = []
    mark(s, v, moves)


@methods(CHANGING, "reverse")
def _reverse(s: Session, v: Any) -> None:
    v.items = v.items[::-1]
    mark(s, v, moves=False)


@methods(CHANGING, "remove")
def _remove(s: Session, v: Any, value: Value) -> None:
    for k, item in enumerate(v.all(s)):
        if s.equal(item, value):
            del v.items[k]
            mark(s, v)
            return
    if issubclass(v.cls, deque):
        s.throw(ValueError, joined(s, [s.to_string(value, "", repr), Const(" is not in deque")]))
    s.throw(ValueError, "list.remove(x): x not in list")


@methods(ALL, "index")
def _index(s: Session, v: Any, value: Value, start: Value = ZERO, stop: Value = NONE) -> Value:
    items = v.all(s)
    for k in range(*slice(start.native(), stop.native()).indices(len(items))):
        if s.equal(items[k], value):
            return Const(k)
    if isinstance(v, TupleValue):
        return s.throw(ValueError, "tuple.index(x): x not in tuple")
    shown = s.to_string(value, "", repr)
    kind = "deque" if issubclass(v.cls, deque) else "list"
    return s.throw(ValueError, joined(s, [shown, Const(f" is not in {kind}")]))


methods(ALL, "count")(lambda s, v, value: Const(sum(s.equal(item, value) for item in v.all(s))))


@methods(CHANGING, "copy")
def _copy(s: Session, v: Any) -> Value:
    made = ListValue([], deque if issubclass(v.cls, deque) else list)
    made.join(s, v)
    made.maxlen = _maxlen(s, v).native()
    return made


@methods(list, "sort")
def _sort(s: Session, v: Any, **kwargs: Value) -> None:
    v.items = sort_values(s, v.all(s), kwargs)
    mark(s, v)


@methods(deque, "rotate")
def _rotate(s: Session, v: Any, count: Value = ONE) -> None:
    steps, moves = as_index(s, count, NO_INTEGER), True
    if type(steps) is int and v.divisible and v.ensure(max(abs(steps), 2), steps > 0):
        goes, comes = (v.tail, v.head) if steps > 0 else (v.head, v.tail)
        for _ in range(abs(steps)):
            comes.insert(0, goes.pop()) if steps > 0 else comes.append(goes.pop(0))
    else:
        turned: deque[Any] = deque(v.items)
        turned.rotate(steps)
        v.items, moves = list(turned), len(turned) > 1
    mark(s, v, moves)


def _alike(left: Value, right: Value) -> bool:
    """Are both lists, both tuples or both deques? Others are neither put together nor compared."""
    return any(issubclass(left.cls, kind) and issubclass(right.cls, kind) for kind in (list, tuple, deque))


@methods(ALL, "__add__")
def _sequence_add(s: Session, v: SequenceValue, other: Value) -> Value:
    if not isinstance(other, SequenceValue) or not _alike(v, other):
        return NOT_IMPLEMENTED
    made: SequenceValue = type(v)([], _plain_class(v))
    made.join(s, v)
    made.join(s, other)
    made.maxlen = _maxlen(s, v).native()
    _trim(made)
    return made


def _plain_class(v: SequenceValue) -> type:
    if issubclass(v.cls, deque) or v.cls.__name__ == "Size":
        return v.cls
    return tuple if isinstance(v, TupleValue) else list


@methods(ALL, "__mul__")
@methods((list, tuple), "__rmul__")
def _sequence_mul(s: Session, v: SequenceValue, count: Value) -> Value:
    if isinstance(count, ObjectValue) and _has(s, count, "__index__") and not _has(s, count, "__rmul__"):
        return type(v)(v.all(s) * as_index(s, count), _plain_class(v))
    if not isinstance(count, Const) or not isinstance(count.value, int):
        return NOT_IMPLEMENTED
    return type(v)(v.all(s) * count.value, _plain_class(v))


def _has(s: Session, value: Value, name: str) -> bool:
    return s.find_special(value, name) is not None


@methods(list, "__imul__")
def _imul(s: Session, v: SequenceValue, count: Value) -> Value:
    v.items = v.all(s) * count.native()
    mark(s, v)
    return v


methods(ALL, "__contains__")(lambda s, v, value: boolean(any(s.equal(item, value) for item in v.all(s))))


def _sequence_compare(sign: str) -> Method:
    function, _, _ = COMPARE[sign]

    def method(s: Session, v: Any, other: Value) -> Value:
        if not isinstance(other, SequenceValue) or not _alike(v, other):
            return NOT_IMPLEMENTED
        left, right = v.all(s), other.all(s)
        for a, b in zip(left, right):
            if not s.equal(a, b):
                if sign in ("==", "!="):
                    return boolean(sign == "!=")
                return s.compare(sign, a, b)
        return boolean(function(len(left), len(right)))

    return method


for _comparison, _row in COMPARE.items():
    methods(ALL, _row[1])(_sequence_compare(_comparison))
methods(ALL, "__getitem__")(sequence_item)
methods(ALL, "__iter__")(lambda s, v: walk(v))
methods(ALL, "__len__")(lambda s, v: Const(len(v.items)))
methods(CHANGING, "__setitem__")(sequence_store)
methods(CHANGING, "__delitem__")(lambda s, v, index: sequence_store(s, v, index, None))
methods(CHANGING, "__reversed__")(backwards)
for _name in ("__add__", "__mul__", "__rmul__", "__getitem__"):
    if _name in torch.Size.__dict__:
        known(torch.Size.__dict__[_name])(KNOWN[tuple.__dict__[_name]])


def _size_radd(s: Session, v: Any, other: Value) -> Value:
    if not isinstance(other, TupleValue):
        return NOT_IMPLEMENTED
    return TupleValue([*other.all(s), *v.all(s)], torch.Size)


if "__radd__" in torch.Size.__dict__:
    methods(torch.Size, "__radd__")(_size_radd)

@known(tuple.__hash__)
def _tuple_hash(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value: Any = args[0]
    return s.call(s.wrap(hash, None), TupleValue(value.all(s)))

