"""Iterators: `step` gives the next value, or None when there are no more."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

from dovetail.capture.values.base import MISSING, Const, Raised, Session, Value
from dovetail.capture.values.callables import KnownValue
from dovetail.capture.values.containers import ListValue, TupleValue
from dovetail.capture.values.sets import SetValue
from dovetail.errors import NOWHERE, Unsupported

LIST_ITERATOR: type = type(iter([]))
TUPLE_ITERATOR: type = type(iter(()))
_END = object()
LONGEST = 4096  # so many remaining values are rebuilt one by one


def _from(base: Any, index: int) -> Any:
    """An iterator over a sequence, from an index on."""
    iterator = iter(base)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(index)
        return iterator
    for _ in itertools.islice(iterator, index):
        pass
    return iterator


def _back_from(base: Any, index: int) -> Any:
    """An iterator over a sequence backwards, from an index on."""
    iterator = reversed(base)
    iterator.__setstate__(index)
    return iterator


def _back_past(base: Any, count: int) -> Any:
    """The same over what has no indices: so many items are passed."""
    iterator = reversed(base)
    for _ in itertools.islice(iterator, count):
        pass
    return iterator


def _changed(kind: type) -> Any:
    """An iterator whose container has changed."""
    table: Any = {0: 0} if kind is dict else kind((0,))
    iterator = iter(table)
    table.clear()
    return iterator


def _mutated() -> Any:
    made = OrderedDict(a=1)
    iterator = iter(made)
    made["b"] = 2
    return iterator


class _Nothing:
    def __getitem__(self, index: int) -> Any:
        raise IndexError


def _ended_indexing() -> Any:
    iterator = iter(_Nothing())
    next(iterator, None)
    return iterator


BASE: Any = property(lambda self: self.base)
#: A native function and values for its arguments that make an iterator; None where there is none.
Parts = tuple[Callable[..., Any], list] | None


class IteratorValue(Value):
    """The root of iterators made inside; subclasses define `step`."""

    __slots__ = ()
    cls = LIST_ITERATOR
    walked: Any = None  # the container that it reads as it goes

    def step(self, s: Session) -> Value | None:
        raise NotImplementedError

    def parts(self, s: Session) -> Parts:
        """What makes such an iterator."""
        return None


class SequenceIterator(IteratorValue):
    """Walks a sequence by index, so that growth during the loop is seen, as in Python."""

    __slots__ = ("base", "cls", "index")
    walked = BASE

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.index = base, 0
        self.cls = TUPLE_ITERATOR if issubclass(base.cls, tuple) else LIST_ITERATOR

    def step(self, s: Session) -> Value | None:
        if self.base is None or self.index >= len(self.base.items):
            self.base = None
            return None
        self.index += 1
        return self.base.at(s, self.index - 1)

    def parts(self, s: Session) -> Parts:
        if self.base is None:
            return iter, [TupleValue([]) if self.cls is TUPLE_ITERATOR else ListValue([])]
        return _from, [self.base, Const(self.index)]


class ReverseIterator(IteratorValue):
    """`reversed` of a list, a tuple or an object with `__getitem__`: by index, and live."""

    __slots__ = ("base", "cls", "index")

    def __init__(self, base: Any, length: int) -> None:
        super().__init__()
        self.base, self.index = base, length - 1
        self.cls = type(reversed([])) if issubclass(base.cls, list) else reversed

    @property
    def walked(self) -> Any:
        return self.base if hasattr(self.base, "changed") else None

    def step(self, s: Session) -> Value | None:
        found = self._item(s) if self.base is not None and self.index >= 0 else None
        self.index -= 1
        if found is None:
            self.base = None
        return found

    def _item(self, s: Session) -> Value | None:
        if hasattr(self.base, "at"):
            return self.base.at(s, self.index) if self.index < len(self.base.items) else None
        return _item_or_end(s, self.base, self.index)

    def parts(self, s: Session) -> Parts:
        if self.base is None:
            return _back_from, [TupleValue([]) if self.cls is reversed else ListValue([]), Const(-1)]
        return _back_from, [self.base, Const(self.index)]


class ConstIterator(IteratorValue):
    """Walks a text, bytes or a range."""

    __slots__ = ("base", "cls", "index", "walk")

    def __init__(self, s: Session, base: Any) -> None:
        super().__init__()
        walk = iter(base)
        self.base, self.cls, self.index = Const(base), type(walk), 0
        self.walk: Iterator[Value] = map(s.from_native, walk)

    def step(self, s: Session) -> Value | None:
        self.index += 1
        return next(self.walk, None)

    def parts(self, s: Session) -> Parts:
        return _from, [self.base, Const(min(self.index, len(self.base.value)))]


class DequeIterator(IteratorValue):
    """Walks a deque, which nobody may add to or take from on the way; backwards, not before the end."""

    __slots__ = ("back", "base", "cls", "index", "moves", "size")
    walked = BASE

    def __init__(self, base: Any, back: bool = False) -> None:
        super().__init__()
        self.base, self.index, self.moves, self.back, self.size = base, 0, base.moves, back, -1
        self.cls = type(reversed(deque()) if back else iter(deque()))

    def step(self, s: Session) -> Value | None:
        if self.moves != self.base.moves:
            return None if self._ended() else s.throw(RuntimeError, "deque mutated during iteration")
        self.size = len(self.base.items)
        if self.index >= self.size:
            return None
        self.index += 1
        return self.base.at(s, len(self.base.items) - self.index if self.back else self.index - 1)

    def _ended(self) -> bool:
        return self.back and self.index == self.size

    def parts(self, s: Session) -> Parts:
        if self.moves != self.base.moves:
            return (_back_past, [ListValue([], deque), Const(0)]) if self._ended() else (_changed, [KnownValue(deque)])
        return _back_past if self.back else _from, [self.base, Const(self.index)]


class NativeIterator(IteratorValue):
    """Walks a Python iterator of values (a snapshot: views, strings, ranges)."""

    __slots__ = ("values", "cls")

    def __init__(self, values: Iterator[Value], cls: type = LIST_ITERATOR) -> None:
        super().__init__()
        self.values, self.cls = values, cls

    def step(self, s: Session) -> Value | None:
        return next(self.values, None)

    def parts(self, s: Session) -> Parts:
        rest = list(itertools.islice(self.values, LONGEST + 1))
        self.values = itertools.chain(rest, self.values)
        return (iter, [TupleValue(rest)]) if len(rest) <= LONGEST else None


class DictIterator(IteratorValue):
    """Walks a dictionary or a view of one (`given`); a change of size on the way is an error, as in Python.

    An OrderedDict's iterator minds any change of keys, unless it has come to the end.
    """

    __slots__ = ("given", "base", "pick", "table", "keys", "size", "index", "done", "back", "cls", "ordered")
    walked = BASE

    def __init__(
        self, given: Any, base: Any, kind: str, pick: Callable[[Any, Any, Any], Value | None], back: bool
    ) -> None:
        super().__init__()
        self.given, self.base, self.pick, self.back = given, base, pick, back
        walk = reversed if back else iter
        self.table, self.ordered = base.entries, issubclass(base.cls, OrderedDict)
        self.keys, self.size, self.index, self.done = walk(self.table), len(self.table), 0, len(self.table.log)
        self.cls = type(walk(getattr(OrderedDict() if self.ordered else {}, kind)()))

    def step(self, s: Session) -> Value | None:
        if self.ordered and self._changes():
            return None if self.index >= self.size else s.throw(RuntimeError, "OrderedDict mutated during iteration")
        try:
            key = next(self.keys, _END)
        except RuntimeError as error:
            return s.throw(RuntimeError, str(error))
        if self.base.real is not MISSING or self.table is not self.base.entries:
            self._same_order(s)
        self.index += 1
        return None if key is _END else self.pick(s, self.base, key)

    def pass_over(self, count: int) -> None:
        """Go on behind so many keys."""
        for _ in itertools.islice(self.keys, count):
            self.index += 1

    def _changes(self) -> set[str]:
        """What has been done to the keys on the way."""
        made = {name for name, _ in self.table.log[self.done :]}
        return made if self.table is self.base.entries else {*made, "clear"}

    def _same_order(self, s: Session) -> None:
        """Only of a dictionary that has lived through all changes in here is it known where its iterator stands."""
        if self._changes() - {"__setitem__"}:
            raise Unsupported(
                "dictionary-order", "keys of a dictionary are exchanged while it is walked", stack=s.stack(),
                break_candidates=NOWHERE,
            )

    def parts(self, s: Session) -> Parts:
        if self.ordered and self._changes() and self.index < self.size:
            return _mutated, []
        if self.size != len(self.base.entries):
            return _changed, [KnownValue(dict)]
        self._same_order(s)
        return _back_past if self.back else _from, [self.given, Const(self.index)]


class SetIterator(IteratorValue):
    """Walks a set, whose `items` are in its order."""

    __slots__ = ("base", "items", "keys", "size")
    cls: type = type(iter(set()))
    walked = BASE

    def __init__(self, base: Any, items: list[Value]) -> None:
        super().__init__()
        self.base, self.items, self.size = base, items[::-1], len(items)
        self.keys = base.entries.keys() if base.cls is frozenset else frozenset(base.entries)

    def step(self, s: Session) -> Value | None:
        if self.base is None:
            return None
        if len(self.base.entries) != self.size:
            return s.throw(RuntimeError, "Set changed size during iteration")
        self._same_items(s)
        if self.items:
            return self.items.pop()
        self.base = None
        return None

    def _same_items(self, s: Session) -> None:
        if self.base.changed and self.base.entries.keys() != self.keys:
            raise Unsupported(
                "set-order", "items of a set are exchanged while it is walked", stack=s.stack(),
                break_candidates=NOWHERE,
            )  # fmt: skip

    def parts(self, s: Session) -> Parts:
        if self.base is None:
            return iter, [SetValue()]
        if len(self.base.entries) != self.size:
            return _changed, [KnownValue(set)]
        self._same_items(s)
        if self.base.real is MISSING and not self.base.entries.reproducible():
            return iter, [TupleValue(self.items[::-1])]
        return _from, [self.base, Const(self.size - len(self.items))]


def walk(base: Any) -> IteratorValue:
    """The iterator of a list, tuple or deque."""
    return DequeIterator(base) if issubclass(base.cls, deque) else SequenceIterator(base)


class Indexing(IteratorValue):
    """Walks an object with `__getitem__` only, by index."""

    __slots__ = ("base", "index")
    cls = type(iter(type("Indexed", (), {"__getitem__": int.__add__})()))

    def __init__(self, base: Value) -> None:
        super().__init__()
        self.base: Any = base
        self.index = 0

    def step(self, s: Session) -> Value | None:
        if self.base is None:
            return None
        found = _item_or_end(s, self.base, self.index)
        self.index += 1
        if found is None:
            self.base = None
        return found

    def parts(self, s: Session) -> Parts:
        return (_ended_indexing, []) if self.base is None else (_from, [self.base, Const(self.index)])


def _item_or_end(s: Session, base: Value, index: int) -> Value | None:
    try:
        return s.get_item(base, Const(index))
    except Raised as raised:
        if not issubclass(raised.value.cls, (IndexError, StopIteration)):
            raise
        return None


class Calling(IteratorValue):
    """`iter(function, sentinel)`."""

    __slots__ = ("ended", "function", "sentinel")
    cls = type(iter(int, 1))

    def __init__(self, function: Value, sentinel: Value) -> None:
        super().__init__()
        self.function, self.sentinel, self.ended = function, sentinel, False

    def step(self, s: Session) -> Value | None:
        if self.ended:
            return None
        value = s.call(self.function)
        self.ended = s.equal(value, self.sentinel)
        return None if self.ended else value

    def parts(self, s: Session) -> Parts:
        return iter, [KnownValue(int), Const(0)] if self.ended else [self.function, self.sentinel]


#: Kinds of values that know how to be walked without their native form; None: not this one.
WALKS: dict[type[Value], Callable[[Session, Any], Value | None]] = {}
