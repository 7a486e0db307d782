"""Sequences, dictionaries and sets of values.

Each is an `ObjectValue`, so subclasses of the built-in types (named tuples, `ModelOutput`) are the
same class with another `cls` and possibly attributes. Storage taken from outside starts as `Lazy`
entries; `changed` says that it must be written back to `real` after the graph has run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, TypeGuard

from dovetail.capture.values.base import MISSING, Const, NotNative, Session, Value
from dovetail.capture.values.number import Precedence, SymbolicNumber
from dovetail.capture.values.objects import Lazy, ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.capture.values.unread_span import Span
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Computed, Source

LITERALS = (int, str, float, bool, bytes, NoneType)


class SequenceValue(ObjectValue):
    """A list, tuple, deque or a subclass of one; `moves` counts changes that end the walks over a deque.

    It holds `head`, what `span` has left unread of a sequence from outside, and `tail`. Whatever needs to know all asks
    for `items`; then there is no `span`, and `head` is all.
    """

    __slots__ = ("head", "span", "tail", "changed", "maxlen", "moves")
    plain: type  # the class of those that no other is named for

    def __init__(
        self, items: Iterable[Any], cls: type | None = None, real: Any = MISSING, source: Source | None = None
    ) -> None:
        super().__init__(cls or self.plain, real, source)
        self.head: list = list(items)
        self.span: Span | None = None
        self.tail: list = []
        self.changed = False
        self.moves = 0
        self.maxlen: int | None = None

    @property
    def items(self) -> list:
        if self.span is not None:
            found = [*self.head, *self.span.rest(), *self.tail]
            self.items = found if self.maxlen is None else found[max(0, len(found) - self.maxlen) :]
        return self.head

    @items.setter
    def items(self, items: list) -> None:
        self.head, self.span, self.tail = items, None, []

    @property
    def divisible(self) -> bool:
        """Can it be read in part?"""
        return self.span is not None and self.span.divisible and self.fits()

    def fits(self, more: int = 0, last: bool = False) -> bool:
        """Let a deque lose at one end what it has no room for, with so many items to come at the other.

        False where only its length says how many those are.
        """
        span: Any = self.span
        grown = len(self.head) + len(self.tail) - span.taken + more
        if grown <= 0 or not issubclass(self.cls, deque):
            return True
        span.s.guard(Attr(span.source, "maxlen"), GuardKind.EQUAL, self.maxlen)
        if self.maxlen is None:
            return True
        room = len(span.real) + grown <= self.maxlen
        if not room and len(span.real) < self.maxlen:
            return False
        text = f"(len({{}}) <= {self.maxlen - grown})" if room else f"(len({{}}) == {self.maxlen})"
        span.s.guard(Computed(text, (span.source,)), GuardKind.ID, True)
        if room:
            return True
        if not self.ensure(grown, last):
            return False
        part, gone = (self.tail, slice(-grown, None)) if last else (self.head, slice(grown))
        del part[gone]
        return True

    def ensure(self, count: int, last: bool) -> bool:
        """Read so many items at one end; False where that relies on the length."""
        if self.span.stores is not None and self.span.stores.resized:  # type: ignore[union-attr]
            return False
        while len(self.tail if last else self.head) < count:
            item = self.span.take(last)  # type: ignore[union-attr]
            if item is None:
                return False
            if last:
                self.tail.insert(0, item)
            else:
                self.head.append(item)
        return True

    def place(self, index: int) -> list:
        """What holds the item of that index, under that index."""
        if self.divisible and self.ensure(index + 1 if index >= 0 else -index, index < 0):
            return self.head if index >= 0 else self.tail
        return self.items

    def at(self, s: Session, index: int) -> Value:
        part = self.place(index)
        item = part[index]
        if type(item) is Lazy:
            item = part[index] = s.wrap(item.real, item.source)
        return item

    def all(self, s: Session) -> list[Value]:
        """Every item, wrapped; a list that the caller must not change."""
        items = self.items
        for k, item in enumerate(items):
            if type(item) is Lazy:
                items[k] = s.wrap(item.real, item.source)
        return items

    def join(self, s: Session, other: SequenceValue) -> None:
        """Put what another holds at the end, unread if that will do."""
        if self.span is None and other.divisible and other.span.stores is None and self.maxlen is None:  # type: ignore[union-attr]
            self.head += other.head
            self.span, self.tail = other.span.copy(), list(other.tail)  # type: ignore[union-attr]
        else:
            (self.head if self.span is None else self.tail).extend(other.all(s))

    def cut(self, start: int | None, stop: int | None) -> tuple[list, bool, list] | None:
        """The parts of `[start:stop]`: a head, whether what is unread comes next, a tail. None: all must be read."""
        first, last = start or 0, stop
        if not self.divisible or self.span.stores is not None or last is not None and first < 0:  # type: ignore[union-attr]
            return None
        if first < 0:
            return ([], False, self.tail[first:]) if self.ensure(-first, True) else None
        if last is not None and last >= 0:
            return (self.head[first:last], False, []) if self.ensure(max(first, last), False) else None
        if self.ensure(first, False) and self.ensure(-(last or 0), True):
            return self.head[first:], True, self.tail[: len(self.tail) + (last or 0)]
        return None


class ListValue(SequenceValue):
    """A list, deque or a subclass of one.

    One from outside is read and guarded where something depends on what it holds.
    """

    __slots__ = ()
    plain = list

    def extend(self, values: list) -> None:
        """Put them at the end, of which only a `maxlen` is left."""
        if self.span is not None:
            self.tail.extend(values)
            return
        self.head.extend(values)
        if self.maxlen is not None and len(self.head) > self.maxlen:
            self.head = self.head[len(self.head) - self.maxlen :]

    def native(self) -> Any:
        if self.cls is not list:
            raise NotNative(self)
        return [native(v) for v in self.items]


class TupleValue(SequenceValue):
    __slots__ = ()
    plain = tuple

    def native(self) -> Any:
        items = [native(v) for v in self.items]
        if self.cls is tuple:
            return tuple(items)
        if self.attrs:
            raise NotNative(self)
        return self.cls._make(items) if hasattr(self.cls, "_make") else self.cls(items)

    def key(self) -> Any:
        return tuple(v.real if type(v) is Lazy else v.key() for v in self.items)


def copied(s: Session, value: SequenceValue, kind: Callable[[list], SequenceValue]) -> SequenceValue:
    """A plain list or tuple of what a sequence holds."""
    made = kind([])
    made.join(s, value)
    return made


class Entries(dict[Any, tuple[Value, Any]]):
    """Native key → (key, value), with what was done to the keys: whoever walks the dictionary sees how it came about.

    `log` has a dictionary's methods and the keys that they are given.
    """

    __slots__ = ("log",)

    def __init__(self, entries: Mapping[Any, tuple[Value, Any]] = MappingProxyType({})) -> None:
        super().__init__(entries)
        self.log: list[tuple[str, tuple[Value, ...]]] = []

    def __setitem__(self, key: Any, entry: tuple[Value, Any]) -> None:
        if key not in self:
            self.log.append(("__setitem__", (entry[0],)))
        super().__setitem__(key, entry)

    def __delitem__(self, key: Any) -> None:
        self.log.append(("__delitem__", (self[key][0],)))
        super().__delitem__(key)

    def popitem(self) -> tuple[Any, tuple[Value, Any]]:
        self.log.append(("popitem", ()))
        return super().popitem()

    def clear(self) -> None:
        self.log.append(("clear", ()))
        super().clear()

    def move(self, key: Any, last: Value, at_end: bool) -> None:
        """An OrderedDict's `move_to_end`."""
        entry, others = self[key], [(k, v) for k, v in self.items() if k != key]
        super().clear()
        super().update([*others, (key, entry)] if at_end else [(key, entry), *others])
        self.log.append(("move_to_end", (entry[0], last)))


class DictValue(ObjectValue):
    """`entries` maps a key's native form to (key, value), in insertion order.

    One from outside is `unread` until something depends on what it holds: reading it wraps and guards its contents.
    What was put in until then, or with MISSING taken out, is `added`, which needs no knowledge of what is there.
    Until then it can be asked for single entries: `look_up` finds those that are outside, `found` are those that were
    asked for or, where keys are tensors (`by_tensors`), put there.
    """

    __slots__ = ("_entries", "added", "by_tensors", "changed", "default_factory", "found", "look_up", "unread")

    def __init__(self, cls: type = dict, real: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self.unread: Callable[[], dict[Any, tuple[Value, Any]]] | None = None
        self.added: list[tuple[Value, Value]] = []
        self.look_up: Callable[[Any], tuple[Value, Any] | None] | None = None
        self.found: dict[Any, tuple[Value, Any] | None] = {}
        self.by_tensors = False
        self._entries = Entries()
        self.changed = False
        self.default_factory: Value | None = None

    @classmethod
    def named(cls, values: Mapping[str, Value]) -> DictValue:
        """A new one, as of keyword arguments."""
        made = cls()
        made.entries = {name: (Const(name), value) for name, value in values.items()}
        return made

    @property
    def entries(self) -> Entries:
        if self.unread is not None:
            self._entries = Entries(self.unread())
            self.unread = None
            for key, value in self.added:
                if value is MISSING:
                    del self._entries[key.key()]
                else:
                    self._store(self._entries, key.key(), key, value)
        return self._entries

    @entries.setter
    def entries(self, entries: Mapping[Any, tuple[Value, Any]]) -> None:
        self.unread, self._entries = None, Entries(entries)

    @staticmethod
    def _store(entries: dict[Any, tuple[Value, Any]], native_key: Any, key: Value, value: Value) -> None:
        old = entries.get(native_key)
        entries[native_key] = (key if old is None else old[0], value)

    def _asked(self, key: Any) -> bool:
        """Can the one entry be had without the others?"""
        if self.unread is None or self.look_up is None or self.added and not self.by_tensors:
            return False
        if not isinstance(key, TensorValue) and type(key) not in LITERALS:
            return False
        if key not in self.found:
            self.found[key] = self.look_up(key)
        return True

    def has(self, key: Any) -> bool:
        """Whether a native key is there."""
        return self.found[key] is not None if self._asked(key) else key in self.entries

    def get(self, s: Session, key: Any) -> Value | None:
        """The value under a native key, wrapped if need be."""
        table: Any = self.found if self._asked(key) else self.entries
        entry = table.get(key)
        if entry is None:
            return None
        value = entry[1]
        if type(value) is Lazy:
            value = s.wrap(value.real, value.source)
            table[key] = (entry[0], value)
        return value

    def put(self, s: Session, key: Value, value: Value) -> None:
        if self.unread is not None and self.by_tensors and (isinstance(key, TensorValue) or literal(key)):
            self.found[s.hashable(key)] = (key, value)
            self.added.append((key, value))
        elif self.unread is not None and not self.by_tensors and (literal(key) or varying_tuple(key)):
            self.added.append((key, value))
        else:
            self._store(self.entries, s.hashable(key), key, value)
        self.mark(s)

    def mark(self, s: Session) -> None:
        self.changed = True
        s.effects.touch(self)

    def pairs(self, s: Session) -> list[tuple[Value, Value]]:
        return [(k, self.get(s, n)) for n, (k, _) in list(self.entries.items())]  # type: ignore[misc]

    def native(self) -> Any:
        if self.cls is not dict:
            raise NotNative(self)
        return {n: native(v) for n, (_, v) in self.entries.items() if native_key(n)}


def literal(key: Value) -> TypeGuard[Const]:
    """Can it be put into a dictionary or set without a look at it?"""
    return isinstance(key, Const) and key.cls in LITERALS


def varying_tuple(key: Any) -> bool:
    """A tuple made inside of literals, some of which differ from call to call."""
    if not isinstance(key, TupleValue) or key.cls is not tuple or key.source is not None or key.span is not None:
        return False
    return all(map(literal, key.head)) and any(map(_varies, key.head))


def _varies(value: Value) -> bool:
    return isinstance(value, SymbolicNumber) and value.precedence is Precedence.INPUT and value.open


class SliceValue(Value):
    """A slice whose parts may be symbolic; `real`: the one from outside."""

    __slots__ = ("start", "stop", "step", "real")
    cls = slice

    def __init__(
        self, start: Value, stop: Value, step: Value, source: Source | None = None, real: Any = MISSING
    ) -> None:
        super().__init__(source)
        self.start, self.stop, self.step, self.real = start, stop, step, real

    def get_attr(self, s: Session, name: str) -> Value:
        parts = {"start": self.start, "stop": self.stop, "step": self.step}
        return parts[name] if name in parts else s.generic_get_attr(self, name)

    def parts(self) -> tuple[Value, Value, Value]:
        return self.start, self.stop, self.step

    def native(self) -> slice:
        if any(isinstance(part, ObjectValue) for part in self.parts()):
            raise NotNative(self)  # its __index__ may give something else next time
        return slice(*[part.native() for part in self.parts()])


class ViewValue(Value):
    """`d.keys()`, `d.values()` or `d.items()`: live, like the real ones."""

    __slots__ = ("base", "kind")

    def __init__(self, base: DictValue, kind: str) -> None:
        super().__init__()
        self.base, self.kind = base, kind

    @property
    def cls(self) -> type:  # type: ignore[override]
        return type(getattr({}, self.kind)())

    def all(self, s: Session) -> list[Value]:
        if self.kind == "keys":
            return [k for k, _ in self.base.entries.values()]
        pairs = self.base.pairs(s)
        return [v for _, v in pairs] if self.kind == "values" else [TupleValue(p) for p in pairs]

    def native(self) -> Any:
        return getattr(self.base.native(), self.kind)()


def native(item: Any) -> Any:
    """The native form of a container's entry; raises NotNative."""
    if type(item) is Lazy:
        raise NotNative(item)
    return item.native()


def native_key(key: Any) -> bool:
    if isinstance(key, Value):
        raise NotNative(key)
    return True


def tensors_in(values: Iterable[Any]) -> list[TensorValue]:
    """The tensors among the values, and in sequences among them."""
    found = []
    for value in values:
        found += [value] if isinstance(value, TensorValue) else []
        found += tensors_in(value.items) if isinstance(value, SequenceValue) else []
    return found
