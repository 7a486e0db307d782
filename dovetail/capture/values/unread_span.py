"""What a region has left unread of a list or tuple from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.capture.values.base import Session, Value
from dovetail.capture.values.objects import Lazy
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Computed, Item, Source


class Span:
    """All items of `real`, as it was when the region began, but the first `front` and the last `back`.

    Taking an item at either end relies on there being so many; the rest relies on the length. Only a `divisible` one,
    of a plain list or tuple, gives single items. `stores` is what was put in and taken out under indices that vary.
    """

    __slots__ = ("s", "real", "source", "front", "back", "read", "divisible", "stores")

    def __init__(
        self, s: Session, real: Any, source: Source, read: Callable[[Any, Source], list], divisible: bool
    ) -> None:
        self.s, self.real, self.source, self.read, self.divisible = s, real, source, read, divisible
        self.front = self.back = 0
        self.stores: Any = None

    def copy(self) -> Span:
        made = Span(self.s, self.real, self.source, self.read, self.divisible)
        made.front, made.back = self.front, self.back
        return made

    @property
    def taken(self) -> int:
        return self.front + self.back

    @property
    def grown(self) -> int:
        """How many items more there are than when the region began."""
        return self.stores.grown if self.stores is not None else 0

    def rest(self) -> list:
        found = self.read(self.real, self.source)
        if self.stores is not None:
            self.stores.apply(found)
        return found[self.front : len(found) - self.back]

    def take(self, last: bool) -> Lazy | Value | None:
        """The next item at one end; None if there is none."""
        if self.taken >= len(self.real):
            return None
        self.back, self.front = self.back + last, self.front + (not last)
        self.s.guard(Computed(f"(len({{}}) >= {self.taken})", (self.source,)), GuardKind.ID, True)
        key = -self.back if last else self.front - 1
        stored = self.stores.at_end(key) if self.stores is not None else None
        return stored if stored is not None else Lazy(self.real[key], Item(self.source, key))
