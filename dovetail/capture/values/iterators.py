"""Iterators: `step` gives the next value, or None when there are no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.capture.values.base import Value

LIST_ITERATOR = type(iter([]))


class IteratorValue(Value):
    """The root of iterators made inside; subclasses define `step`."""

    __slots__ = ()
    cls = LIST_ITERATOR

    def step(self, s: Any) -> Value | None:
        raise NotImplementedError


class SequenceIterator(IteratorValue):
    """Walks a sequence by index, so that growth during the loop is seen, as in Python."""

    __slots__ = ("base", "index")

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.index = base, 0

    def step(self, s: Any) -> Value | None:
        if self.base is None or self.index >= len(self.base.items):
            self.base = None
            return None
        self.index += 1
        return self.base.at(s, self.index - 1)


class NativeIterator(IteratorValue):
    """Walks a Python iterator of values (a snapshot: views, strings, ranges)."""

    __slots__ = ("values", "cls")

    def __init__(self, values: Iterator[Value], cls: type = LIST_ITERATOR) -> None:
        super().__init__()
        self.values, self.cls = values, cls

    def step(self, s: Any) -> Value | None:
        return next(self.values, None)


class CallableIterator(IteratorValue):
    """`step` is a function from outside: zip, enumerate, map, user-defined iterators."""

    __slots__ = ("function", "cls")

    def __init__(self, function: Callable[[Any], Value | None], cls: type = LIST_ITERATOR) -> None:
        super().__init__()
        self.function, self.cls = function, cls

    def step(self, s: Any) -> Value | None:
        return self.function(s)
