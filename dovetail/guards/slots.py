"""Where in memory-like containers a source's value lies: a chain of `container[key]` reads.

A path from an object that the entry holds (`K[n]`) through module tables, instance dictionaries, lists
and tuples is a chain of slots. While every slot of the chain holds the same object as when compiling, the
source still leads to the same value, and one bulk call checks thousands of slots.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

from dovetail.ir.records import dataclass
from dovetail.ir.source import (
    ASKED_OF,
    Attr,
    Bound,
    Computed,
    ComputedItem,
    Item,
    Keyed,
    Member,
    RawAttr,
    Source,
)

if TYPE_CHECKING:
    from dovetail.guards.holding import Held


class NotSlotted(Exception):
    """The path runs through something that computes."""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    container: Any
    key: Any
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """What an object keeps in itself, not in a dictionary: in a slot of its class, in a cell, in a bound method."""

    owner: Any
    name: str
    value: Any


#: What objects of built-in classes keep as it was given.
_KEPT: Mapping[type, tuple[str, ...]] = {
    FunctionType: ("__closure__",), CellType: ("cell_contents",), MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
}  # fmt: skip


class Resolver:
    """Values, slots and fields of sources under `bound`, each computed once."""

    def __init__(self, bound: tuple | Held) -> None:
        self.bound = bound
        self.slots: dict[tuple[int, Any], Slot] = {}
        self.fields: dict[tuple[int, str], Field] = {}
        self.owners: dict[int, tuple[Any, dict[str, Any]]] = {}  # objects whose own dictionaries were read
        self._values: dict[int, tuple[Source, Any]] = {}  # by identity: paths share their beginnings
        self._plain: dict[tuple[type, str], bool] = {}
        self._keeps: dict[tuple[type, str], bool] = {}
        self.anchored: Known = {}

    def value(self, source: Source) -> Any:
        """The value, its slots being recorded on the way; NotSlotted if it has none."""
        found = self._values.get(id(source))
        if found is None:
            step = _STEPS.get(type(source))
            if step is None:
                raise NotSlotted
            found = self._values[id(source)] = source, step(self, source)
        return found[1]

    def reads_plainly(self, cls: type, field: str) -> bool:
        """Does an attribute of an object of the class come from the object's dictionary, if it is there?"""
        found = self._plain.get((cls, field))
        if found is None:
            computes = issubclass(cls, type) or cls.__getattribute__ is not object.__getattribute__
            found = self._plain[cls, field] = not computes and not hasattr(type(_static(cls, field)), "__set__")
        return found

    def keeps(self, cls: type, name: str) -> bool:
        """Does an object of the class keep the attribute in itself?"""
        found = self._keeps.get((cls, name))
        if found is None:
            computes = issubclass(cls, type) or cls.__getattribute__ is not object.__getattribute__
            slot = not computes and type(_static(cls, name)) is MemberDescriptorType
            found = self._keeps[cls, name] = name in _KEPT[cls] if cls in _KEPT else slot
        return found

    def read_field(self, owner: Any, name: str) -> Any:
        try:
            value = getattr(owner, name)
        except (AttributeError, ValueError):  # a cell without contents
            raise NotSlotted from None
        if getattr(owner, name) is not value:  # a number in C
            raise NotSlotted
        self.fields.setdefault((id(owner), name), Field(owner, name, value))
        return value

    def own_dict(self, obj: Any) -> dict[str, Any]:
        found = _own_dict(obj)
        self.owners[id(obj)] = (obj, found)
        return found

    def read(self, container: Any, key: Any) -> Any:
        try:
            value = container[key]
        except (KeyError, IndexError):
            raise NotSlotted from None
        self.slots.setdefault((id(container), key), Slot(container, key, value))
        return value


def anchored(source: Source | None, known: Known | None = None) -> bool:
    """Whether the path starts at an object that the entry itself holds. `known`: what was found of paths, by identity:
    they share their beginnings."""
    if isinstance(source, Computed) and source.template in ASKED_OF:
        source = source.operands[ASKED_OF[source.template]]
    return _anchored(source, {} if known is None else known)


Known = dict[int, tuple[Source, bool]]


def _anchored(source: Source | None, known: Known) -> bool:
    if source is None or isinstance(source, (Bound, ComputedItem)):
        return isinstance(source, Bound)
    found = known.get(id(source))
    if found is None:
        by_key = not isinstance(source, Keyed) or anchored(source.key, known)
        found = known[id(source)] = source, by_key and _anchored(getattr(source, "base", None), known)
    return found[1]


def _bound(resolver: Resolver, source: Any) -> Any:
    return resolver.bound[source.index]


def _own_dict(obj: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        raise NotSlotted from None
    if type(found) is not dict:
        raise NotSlotted
    return found


def _member(resolver: Resolver, source: Any) -> Any:
    table = resolver.read(resolver.own_dict(resolver.value(source.base)), source.table)
    if type(table) not in (dict, OrderedDict):
        raise NotSlotted
    return resolver.read(table, source.field)


def _static(cls: type, name: str) -> Any:
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)


def _attr(resolver: Resolver, source: Any) -> Any:
    obj = resolver.value(source.base)
    if resolver.keeps(type(obj), source.field):
        return resolver.read_field(obj, source.field)
    if not resolver.reads_plainly(type(obj), source.field):
        raise NotSlotted
    return resolver.read(resolver.own_dict(obj), source.field)


def _item(resolver: Resolver, source: Any) -> Any:
    obj = resolver.value(source.base)
    if type(obj) not in (list, tuple, dict, OrderedDict):
        raise NotSlotted
    return resolver.read(obj, source.key)


def _keyed(resolver: Resolver, source: Any) -> Any:
    table, key = resolver.value(source.base), resolver.value(source.key)
    if type(table) not in (dict, OrderedDict, defaultdict) or key not in table:
        raise NotSlotted
    return resolver.read(table, key)


def _own(resolver: Resolver, source: Any) -> Any:
    return resolver.read(resolver.own_dict(resolver.value(source.base)), source.field)


_STEPS: dict[type, Callable[[Resolver, Any], Any]] = {
    Bound: _bound, Member: _member, Attr: _attr, Item: _item, Keyed: _keyed, RawAttr: _own,
}  # fmt: skip
