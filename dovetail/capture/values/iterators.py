"""Iterators: `step` gives the next value, or None when there are no more."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dovetail.capture.values.base import Const, Value

LIST_ITERATOR = type(iter([]))
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


def _over(*values: Any) -> Any:
    return iter(values)


def _changed(a_set: bool) -> Any:
    """An iterator whose container has changed its size."""
    table: Any = {0} if a_set else {0: 0}
    iterator = iter(table)
    table.clear()
    return iterator


def _empty() -> Any:
    return iter(())


class IteratorValue(Value):
    """The root of iterators made inside; subclasses define `step`."""

    __slots__ = ()
    cls = LIST_ITERATOR

    def step(self, s: Any) -> Value | None:
        raise NotImplementedError

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        """A native function and values for its arguments that make such an iterator; None where there is none."""
        return None


class SequenceIterator(IteratorValue):
    """Walks a sequence by index, so that growth during the loop is seen, as in Python."""

    __slots__ = ("base", "index", "size")

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.index, self.size = base, 0, len(base.items)

    def step(self, s: Any) -> Value | None:
        if self.base is None or self.index >= (self.size if issubclass(self.base.cls, deque) else len(self.base.items)):
            self.base = None
            return None
        if self.size != len(self.base.items) and issubclass(self.base.cls, deque):
            return s.throw(RuntimeError, "deque mutated during iteration")
        self.index += 1
        return self.base.at(s, self.index - 1)

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        if self.base is None:
            return _empty, []
        return _from, [self.base, Const(self.index)]


class NativeIterator(IteratorValue):
    """Walks a Python iterator of values (a snapshot: views, strings, ranges)."""

    __slots__ = ("values", "cls")

    def __init__(self, values: Iterator[Value], cls: type = LIST_ITERATOR) -> None:
        super().__init__()
        self.values, self.cls = values, cls

    def step(self, s: Any) -> Value | None:
        return next(self.values, None)

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        rest = list(itertools.islice(self.values, LONGEST + 1))
        self.values = itertools.chain(rest, self.values)
        return (_over, rest) if len(rest) <= LONGEST else None


class DictIterator(IteratorValue):
    """Walks a dictionary or a view of one (`given`); a change of size on the way is an error, as in Python."""

    __slots__ = ("given", "base", "pick", "keys", "size", "index")

    def __init__(self, given: Any, base: Any, pick: Callable[[Any, Any, Any], Value]) -> None:
        super().__init__()
        self.given, self.base, self.pick = given, base, pick
        self.keys, self.size, self.index = iter(base.entries), len(base.entries), 0

    def step(self, s: Any) -> Value | None:
        try:
            key = next(self.keys, _END)
        except RuntimeError as error:
            return s.throw(RuntimeError, str(error))
        self.index += 1
        return None if key is _END else self.pick(s, self.base, key)

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        if self.size != len(self.base.entries):
            return _changed, [Const(False)]
        return _from, [self.given, Const(self.index)]


class SetIterator(IteratorValue):
    """Walks a set, whose `items` are in its order."""

    __slots__ = ("base", "items", "size")

    def __init__(self, base: Any, items: list[Value]) -> None:
        super().__init__()
        self.base, self.items, self.size = base, items[::-1], len(items)

    def step(self, s: Any) -> Value | None:
        if self.base is None:
            return None
        if len(self.base.entries) != self.size:
            return s.throw(RuntimeError, "Set changed size during iteration")
        if self.items:
            return self.items.pop()
        self.base = None
        return None

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        if self.base is not None and len(self.base.entries) != self.size:
            return _changed, [Const(True)]
        return _over, self.items[::-1]


class CallableIterator(IteratorValue):
    """`step` is a function from outside: zip, enumerate, map, user-defined iterators."""

    __slots__ = ("function", "cls")

    def __init__(self, function: Callable[[Any], Value | None], cls: type = LIST_ITERATOR) -> None:
        super().__init__()
        self.function, self.cls = function, cls

    def step(self, s: Any) -> Value | None:
        return self.function(s)


class Enumerating(IteratorValue):
    """`enumerate`; `make` builds the pair's value."""

    __slots__ = ("iterator", "count", "make")
    cls = enumerate

    def __init__(self, iterator: Value, count: int, make: Callable[[list[Value]], Value]) -> None:
        super().__init__()
        self.iterator, self.count, self.make = iterator, count, make

    def step(self, s: Any) -> Value | None:
        value = s.step(self.iterator)
        if value is None:
            return None
        self.count += 1
        return self.make([Const(self.count - 1), value])

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        return enumerate, [self.iterator, Const(self.count)]


class Zipping(IteratorValue):
    """`zip` without `strict`; `make` builds the row's value."""

    __slots__ = ("iterators", "make")
    cls = zip

    def __init__(self, iterators: list[Value], make: Callable[[list[Value]], Value]) -> None:
        super().__init__()
        self.iterators, self.make = iterators, make

    def step(self, s: Any) -> Value | None:
        row = []
        for iterator in self.iterators:
            value = s.step(iterator)
            if value is None:
                return None
            row.append(value)
        return self.make(row) if row else None

    def parts(self, s: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        return zip, list(self.iterators)
