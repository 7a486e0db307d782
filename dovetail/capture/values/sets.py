"""Sets of values: beside each, a real set of its keys says in which order Python walks it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dovetail.capture.process.unguarded_facts import text_order
from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.containers import LITERALS, literal, native
from dovetail.capture.values.objects import ObjectValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Source


class SetEntries(dict[Any, Value]):
    """Native key → value, in the order of insertion.

    `order` is a real set that has lived through the same changes, of the keys whose places in a set are known.
    """

    def __init__(self, entries: Mapping[Any, Value] = MappingProxyType({}), order: Any = None) -> None:
        super().__init__(entries)
        self.order = set(filter(orders_alike, entries)) if order is None else order

    def __setitem__(self, key: Any, value: Value) -> None:
        super().__setitem__(key, value)
        if orders_alike(key):
            self.order.add(key)

    def setdefault(self, key: Any, value: Any = None) -> Any:
        if key not in self:
            self[key] = value
        return self[key]

    def pop(self, key: Any, default: Any = None) -> Any:
        if orders_alike(key):
            self.order.discard(key)
        return super().pop(key, default)

    def clear(self) -> None:
        super().clear()
        self.order.clear()

    def take_in(self, entries: Mapping[Any, Value]) -> None:
        """`set.update`; how a set grows depends on what the other is."""
        known = isinstance(entries, SetEntries) or all(map(orders_alike, entries))
        self.order.update(getattr(entries, "order", entries) if known else filter(orders_alike, entries))
        for key, value in entries.items():
            dict.setdefault(self, key, value)

    def to_insert(self) -> list[Value]:
        """The items, such that a set which takes them in one by one has the order of this one, if that is known."""
        keys = self._insertions()
        return list(self.values()) if keys is None else [self[key] for key in keys]

    def reproducible(self) -> bool:
        """Will a set that is made of `to_insert` have this one's order?"""
        return self._insertions() is not None

    def _insertions(self) -> Any:
        wanted = list(self.order)
        if len(wanted) != len(self):
            return list(self) if len(self) < 2 else None
        tries = itertools.permutations(wanted) if len(wanted) <= PERMUTED else ()
        every = itertools.chain((list(self), wanted, wanted[::-1]), tries)
        return next((keys for keys in every if list(set(keys)) == wanted), None)


PERMUTED = 6  # items of a set whose every order is tried


class SetValue(ObjectValue):
    """A set or frozenset; `unread` and `added` are as a dictionary's, `found` is what was read."""

    __slots__ = ("_entries", "added", "changed", "found", "unread")

    def __init__(self, cls: type = set, real: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self.unread: Callable[[], SetEntries] | None = None
        self.added: list[Const] = []
        self.found: dict[Any, Value] = {}
        self._entries = SetEntries()
        self.changed = False

    @property
    def entries(self) -> SetEntries:
        if self.unread is not None:
            self._entries = self.unread()
            self.found, self.unread = dict(self._entries), None
            for value in self.added:
                self._entries.setdefault(value.value, value)
        return self._entries

    @entries.setter
    def entries(self, entries: SetEntries) -> None:
        self.unread, self._entries = None, entries

    def has(self, key: Any) -> bool:
        """Whether a native key is there."""
        return key in self.entries

    def ordered(self, s: Session) -> list[Value]:
        """The items as iteration gives them."""
        if len(self.entries) < 2:
            return list(self.entries.values())
        text_order(s, self.entries)
        if self.source is not None and not self.changed:
            s.guard(self.source, GuardKind.KEYS, tuple(self.real))
            return [self.entries[key] for key in self.real]
        if self.source is not None or len(self.entries.order) != len(self.entries):  # equal sets have other orders
            s.unsupported("set-order", "a set is walked in an order that capture does not know")
        return [self.entries[key] for key in self.entries.order]

    def replay(self) -> tuple[list[Value] | None, list[Value]]:
        """What to take out of the set from outside, None for all of it, and what to put in then."""
        kept = {k for k, value in self.found.items() if self.entries.get(k) is value}
        gone = [value for k, value in self.found.items() if k not in kept] if kept else None
        return gone, [value for k, value in self.entries.items() if k not in kept]

    def add(self, s: Session, value: Value) -> None:
        if self.unread is not None and literal(value):
            self.added.append(value)
        else:
            self.entries.setdefault(s.hashable(value), value)
        self.mark(s)

    def native(self) -> Any:
        items = [native(v) for v in self.entries.values()]
        if len(self.entries.order) != len(items):
            return self.cls(items)
        # A copy would have another order. Nobody changes what stands for a value.
        return self.entries.order if type(self.entries.order) is self.cls else self.cls(self.entries.order)

    def key(self) -> Any:
        return frozenset(self.entries)

    def mark(self, s: Session) -> None:
        self.changed = True
        s.effects.touch(self)


def orders_alike(key: Any) -> bool:
    """Does the key's hash, and so its place in a set, follow from its value?"""
    return all(map(orders_alike, key)) if type(key) is tuple else type(key) in LITERALS
