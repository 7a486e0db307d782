"""Iterators over other iterators: what `map`, `filter`, `enumerate` and `zip` give."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dovetail.capture.values.base import Const, Session, Value
from dovetail.capture.values.iterators import IteratorValue, Parts


class Mapping(IteratorValue):
    """`map`."""

    __slots__ = ("function", "iterators")
    cls = map

    def __init__(self, function: Value, iterators: list[Value]) -> None:
        super().__init__()
        self.function, self.iterators = function, iterators

    def step(self, s: Session) -> Value | None:
        row = []
        for iterator in self.iterators:
            value = s.step(iterator)
            if value is None:
                return None
            row.append(value)
        return s.call(self.function, *row)

    def parts(self, s: Session) -> Parts:
        return map, [self.function, *self.iterators]


class Filtering(IteratorValue):
    """`filter`; a function of None keeps what is true."""

    __slots__ = ("function", "iterator")
    cls = filter

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__()
        self.function, self.iterator = function, iterator

    def step(self, s: Session) -> Value | None:
        everything = isinstance(self.function, Const)
        while (value := s.step(self.iterator)) is not None:
            if s.truth(value if everything else s.call(self.function, value)):
                return value
        return None

    def parts(self, s: Session) -> Parts:
        return filter, [self.function, self.iterator]


class Enumerating(IteratorValue):
    """`enumerate`; `make` builds the pair's value."""

    __slots__ = ("iterator", "count", "make")
    cls = enumerate

    def __init__(self, iterator: Value, count: int, make: Callable[[list[Value]], Value]) -> None:
        super().__init__()
        self.iterator, self.count, self.make = iterator, count, make

    def step(self, s: Session) -> Value | None:
        value = s.step(self.iterator)
        if value is None:
            return None
        self.count += 1
        return self.make([Const(self.count - 1), value])

    def parts(self, s: Session) -> Parts:
        return enumerate, [self.iterator, Const(self.count)]


class Zipping(IteratorValue):
    """`zip`; `make` builds the row's value."""

    __slots__ = ("iterators", "make", "strict")
    cls = zip

    def __init__(self, iterators: list[Value], make: Callable[[list[Value]], Value], strict: bool = False) -> None:
        super().__init__()
        self.iterators, self.make, self.strict = iterators, make, strict

    def step(self, s: Session) -> Value | None:
        row = []
        for k, iterator in enumerate(self.iterators):
            value = s.step(iterator)
            if value is None:
                if self.strict:
                    self._end(s, k)
                return None
            row.append(value)
        return self.make(row) if row else None

    def _end(self, s: Session, ended: int) -> None:
        """All iterators must end together; the first to differ is named."""
        if ended:
            _wrong_length(s, ended + 1, "shorter")
        for k, iterator in enumerate(self.iterators[1:], 2):
            if s.step(iterator) is not None:
                _wrong_length(s, k, "longer")

    def parts(self, s: Session) -> Parts:
        return _strict_zip if self.strict else zip, list(self.iterators)


_strict_zip = functools.partial(zip, strict=True)


def _wrong_length(s: Session, position: int, how: str) -> None:
    others = "argument 1" if position == 2 else f"arguments 1-{position - 1}"
    s.throw(ValueError, f"zip() argument {position} is {how} than {others}")
