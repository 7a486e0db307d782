"""Ranges between sizes that vary: a loop relies on how often it runs, and its items are sizes again.

    for start in range(0, n, 128):      ->      relies on 128*(k - 1) < n <= 128*k, where it runs k times
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.capture.numbers import input_numbers
from dovetail.capture.numbers.size_values import as_dim, is_open_size, size_value
from dovetail.capture.numbers.unbacked_sizes import UnbackedSize
from dovetail.capture.values.base import Const, LazyConst, Session, Value
from dovetail.capture.values.iterators import WALKS, ConstIterator, _from
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL


class SizeRange(LazyConst):
    """A range; who asks for it relies on its bounds."""

    __slots__ = ("bounds", "step")

    def __init__(self, s: Session, bounds: list[Any], step: int) -> None:
        self.s, self.bounds, self.step, self.seen = s, bounds, step, False
        first, last = bounds
        self.real = range(input_numbers.number_of(first), input_numbers.number_of(last), step)
        self.source = input_numbers.source_of(s, "{}({}, {}, {})", [s.bind(range), *bounds, Const(step)])

    @property
    def value(self) -> range:
        if not self.seen:
            self.seen = True
            for bound in self.bounds:
                bound.value  # noqa: B018 it is relied on from now on
        return self.real


def between(s: Session, args: list[Any]) -> Value | None:
    """`range(*args)` where a bound is a size that varies; None where only constants will do."""
    if not 1 <= len(args) <= 3:
        return None
    first, last, step = (Const(0), *args, Const(1)) if len(args) == 1 else (*args, Const(1))[:3]
    if not any(map(is_open_size, (first, last))) or any(isinstance(v, UnbackedSize) for v in (first, last)):
        return None
    if not isinstance(step, Const) or is_open_size(step) or step.cls is not int or step.value <= 0:
        return None
    known = None not in (as_dim(s, first), as_dim(s, last))
    return SizeRange(s, [first, last], step.value) if known else None


class RangeIterator(ConstIterator):
    """Walks such a range."""

    __slots__ = ()

    def __init__(self, s: Session, base: SizeRange) -> None:
        super().__init__(s, base.real)
        self.base = base
        self.walk = self.items(s)

    def items(self, s: Session) -> Iterator[Value]:
        base: Any = self.base
        bounds: list[Any] = [as_dim(s, bound) for bound in base.bounds]
        first, last = bounds
        times, table = len(base.real), s.table.sizes
        if base.step == 1 and times:
            table.holds(EQUAL, last - first - times)
        else:
            table.holds(AT_LEAST, first + times * base.step - last)
            if times:
                table.holds(AT_LEAST, last - first - (times - 1) * base.step - 1)
        return (size_value(s, first + k * base.step) for k in range(times))

    def parts(self, s: Session) -> Any:
        base: Any = self.base
        return _from, [base, Const(min(self.index, len(base.real)))]


WALKS[SizeRange] = lambda s, value: None if value.seen else RangeIterator(s, value)
