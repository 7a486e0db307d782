"""What a region puts into the unread part of a list, and takes out of it, at places that differ from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.capture.numbers import dispatch, input_numbers
from dovetail.capture.values.base import Const, LazyConst, Session, Value
from dovetail.capture.values.unread_span import Span


class Splices:
    """In order: at which place so many items make room for which others. Each counts places as they are by then."""

    def __init__(self, s: Session, span: Span, one: Callable[[Any, Value, Value], bool]) -> None:
        self.s, self.span, self.one = s, span, one
        self.made: list[tuple[Any, int, list[Value]]] = []
        self.grown, self.resized = 0, False

    def splice(self, place: Value, removed: int, new: list[Value]) -> None:
        self.made.append((place, removed, new))
        self.grown += len(new) - removed
        self.resized |= len(new) != removed

    def at(self, place: Any) -> tuple[Value | None, Any]:
        """What was put at a place, if anything, and where the item was before all that."""
        for start, removed, new in reversed(self.made):
            if removed == len(new) == 1:
                if self.one(self.s, start, place):
                    return new[0], place
                continue
            offset = real(place) - real(start)
            if not self._relies(f"({{}} - {{}} >= {max(min(offset, len(new)), 0)})", place, start, offset >= 0):
                continue
            if offset < len(new):
                self._relies(f"({{}} - {{}} == {offset})", place, start, True)
                return new[offset], place
            moved = Const(removed - len(new))
            place = dispatch.binary(self.s, "add", place, moved) or Const(place.value + moved.value)
        return None, place

    def _relies(self, text: str, place: Value, start: Value, found: bool) -> bool:
        if input_numbers.varies(place) or input_numbers.varies(start):
            input_numbers.outcome(self.s, text, [place, start], found)
        return found

    def at_end(self, key: int) -> Value | None:
        """The same so far from the beginning or, below 0, from the end; only while all items are where they were."""
        if key >= 0:
            return self.at(Const(key))[0]
        span: Any = self.span
        place = input_numbers.computed(self.s, f"(len({{}}) - {-key})", [span], len(span.real) + key)
        return self.at(place)[0]

    def apply(self, items: list) -> None:
        """Do it to all that the list held."""
        for place, removed, new in self.made:
            items[place.value : place.value + removed] = new


def real(key: Any) -> Any:
    """The value, without relying on it."""
    return key.real if isinstance(key, LazyConst) else key.value
