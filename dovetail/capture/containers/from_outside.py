"""Containers from outside: tuples, lists, dictionaries and sets, unread until something depends on what they hold."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.containers.hashing import identified
from dovetail.capture.numbers.input_numbers import varies_inside
from dovetail.capture.outside.wrap import WRAPPERS, owned, remember, wrap, wrapper_for
from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.containers import DictValue, ListValue, TupleValue
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.objects import Lazy
from dovetail.capture.values.sets import SetEntries, SetValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.capture.values.unread_span import Span
from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import has_literal
from dovetail.ir.source import Attr, ComputedItem, DictGet, Item, KeyAt, Keyed, OwnDict, RawItem, RawView, Source


def _wrap_tuple(s: Session, obj: Any, source: Source | None) -> Value:
    cls = type(obj)
    if source is None:
        return TupleValue([wrap(s, v, None) for v in obj], cls)
    if cls is not tuple:
        return TupleValue(_read_tuple(s, obj, source), cls, obj, source)
    s.guard(source, GuardKind.TYPE, cls)
    value = TupleValue([], cls, obj, source)
    value.span = Span(s, obj, source, functools.partial(_read_tuple, s), True)
    return value


def _read_tuple(s: Session, obj: Any, source: Source) -> list:
    """Something depends on what it holds."""
    if plain(obj) and not varies_inside(s, obj, source):
        s.guard(source, GuardKind.EQUAL, obj)
        return [Const(v) for v in obj]
    s.guard(source, GuardKind.TYPE, type(obj))
    _guard_length(s, obj, source, tuple)
    item = _item_source(s, type(obj), tuple)
    return [Lazy(v, item(source, k)) for k, v in enumerate(tuple.__iter__(obj))]


def plain(obj: Any) -> bool:
    """A tuple that one EQUAL guard covers: strings and integers only."""
    return all(type(v) in (int, str) for v in obj)


def _guard_length(s: Session, obj: Any, source: Source, kind: type) -> None:
    """The number of items, past what a subclass says of it."""
    if s.static(type(obj), "__len__") is kind.__len__:  # type: ignore[attr-defined]
        s.guard(source, GuardKind.LENGTH, len(obj))
    else:
        s.guard(RawView(source, f"{kind.__name__}.__len__"), GuardKind.EQUAL, kind.__len__(obj))  # type: ignore[attr-defined]


def _item_source(s: Session, cls: type, kind: type) -> Callable[[Source, Any], Source]:
    """How an item is reached, past what a subclass makes of `obj[key]`."""
    if kind is dict and s.static(cls, "__missing__") is not MISSING:
        return DictGet
    if kind is deque or s.static(cls, "__getitem__") is kind.__getitem__:  # type: ignore[index]
        return Item
    return lambda source, key: RawItem(source, key, kind.__name__)


def _wrap_list(s: Session, obj: Any, source: Source | None) -> Value:
    source = owned(s, obj, source)
    value = ListValue([], type(obj), obj, source)
    value.span = Span(s, obj, source, functools.partial(_read_list, s), type(obj) in (list, deque))
    if isinstance(obj, deque):
        value.maxlen = obj.maxlen
    return remember(s, obj, value)


def _read_list(s: Session, obj: Any, source: Source) -> list:
    """Something depends on what it holds."""
    kind = deque if isinstance(obj, deque) else list
    if kind is deque:
        s.guard(Attr(source, "maxlen"), GuardKind.EQUAL, obj.maxlen)
    _guard_length(s, obj, source, kind)
    item = _item_source(s, type(obj), kind)
    return [Lazy(v, item(source, k)) for k, v in enumerate(kind.__iter__(obj))]


def _wrap_dict(s: Session, obj: Any, source: Source | None) -> Value:
    owner = s.objects.namespaces.get(id(obj))
    if owner is not None:
        if source is not None:
            s.guard(source, GuardKind.ALIAS, OwnDict(owner.source))
        return NamespaceValue(owner)
    source = owned(s, obj, source)
    value = DictValue(type(obj), obj, source)
    value.unread = functools.partial(_read_dict, s, obj, source)
    if plainly_read(s, type(obj)):
        value.look_up, value.by_tensors = functools.partial(look_up, s, obj, source), by_tensors(obj)
    if isinstance(obj, defaultdict):
        value.default_factory = wrap(s, obj.default_factory, Attr(source, "default_factory"))
    return remember(s, obj, value)


def _read_dict(s: Session, obj: Any, source: Source) -> dict[Any, tuple[Value, Any]]:
    keys = tuple(OrderedDict.keys(obj) if isinstance(obj, OrderedDict) else dict.keys(obj))
    if by_tensors(keys):
        return read_keyed(s, obj, keys, source)
    plain_keys = s.static(type(obj), "__iter__") in (dict.__iter__, OrderedDict.__iter__)
    s.guard(source if plain_keys else RawView(source, "dict.keys"), GuardKind.KEYS, keys)
    reach = _item_source(s, type(obj), dict)
    entries = {}
    for k, key in enumerate(keys):
        item = reach(source, key) if has_literal(key) else ComputedItem(source, s.bind(key))
        known, own = _entry_key(s, key, KeyAt(source, k))
        entries[own] = (known, Lazy(dict.__getitem__(obj, key), item))
    return entries


def _entry_key(s: Session, key: Any, place: Source | None) -> tuple[Value, Any]:
    """A key that a guard of the whole covers, and what it is as a key.

    One that compares in Python may be an equal object in another call, so it is read from its place.
    """
    another = compares(key)
    known = wrap(s, key, place if another else None)
    if not another:
        identified(s, known)
    return known, s.hashable(known)


def compares(key: Any) -> bool:
    """Is it an object whose class says in Python what is equal to it, or are there such in the tuple?"""
    cls = type(key)
    if isinstance(key, tuple):
        return any(map(compares, key))
    return type(cls.__hash__) is types.FunctionType and cls not in WRAPPERS and wrapper_for(cls) is None


def _wrap_set(s: Session, obj: Any, source: Source | None) -> Value:
    if source is not None or isinstance(obj, set):
        source = owned(s, obj, source)
    value = SetValue(type(obj), obj if source is not None else MISSING, source)
    if isinstance(obj, set):
        value.unread = functools.partial(_read_set, s, obj, source)
    else:
        value.entries = _read_set(s, obj, source)
    return remember(s, obj, value) if source is not None else value


def _read_set(s: Session, obj: Any, source: Source | None) -> SetEntries:
    if source is not None:
        s.guard(source, GuardKind.EQUAL, type(obj)(obj))
    items = tuple(obj)
    if source is not None and any(map(compares, items)):
        s.guard(source, GuardKind.KEYS, items)
    places = [None if source is None else KeyAt(source, k) for k in range(len(items))]
    entries = {own: known for known, own in map(functools.partial(_entry_key, s), items, places)}
    return SetEntries(entries, obj if isinstance(obj, frozenset) else None)


WRAPPERS |= dict.fromkeys((tuple, torch.Size), _wrap_tuple)
WRAPPERS |= dict.fromkeys((list, deque), _wrap_list)
WRAPPERS |= dict.fromkeys((dict, OrderedDict, defaultdict), _wrap_dict)
WRAPPERS |= dict.fromkeys((set, frozenset), _wrap_set)


# ---------------------------------------------------------------- single entries of dictionaries

# What the program asks for is guarded; the order and number of the keys only where it looks at the whole, so that a
# registry may grow. A tensor, as in an optimizer's state, is a key by its identity, so an entry is found by the path to
# the tensor: `state.get(group["params"][3])`.


#: Types whose `get` is a dictionary's own.
KEYED = (dict, OrderedDict, defaultdict)


def plainly_read(s: Session, cls: type) -> bool:
    """Do `in` and `[]` do what a dictionary's do?"""
    own = s.static(cls, "__contains__") is dict.__contains__ and s.static(cls, "__getitem__") is dict.__getitem__
    return cls in KEYED or own and s.static(cls, "__missing__") is MISSING


def by_tensors(obj: Any) -> bool:
    """Are there tensors among the keys?"""
    return any(isinstance(key, torch.Tensor) for key in obj)


def look_up(s: Session, obj: Any, source: Source, key: Any) -> tuple[Value, Any] | None:
    """The entry outside under the native key, a tensor or a literal; None if there is none."""
    if not isinstance(key, TensorValue):
        present = key in obj
        s.guard(source, GuardKind.CONTAINS, (key, present))
        return (s.wrap(key, None), Lazy(obj[key], source.item(key))) if present else None
    if key.origin is None or key.source is None:
        return None
    present = key.origin in obj
    s.guard(source, GuardKind.HAS_KEY, (key.source, present))
    return (key, Lazy(obj[key.origin], Keyed(source, key.source))) if present else None


def read_keyed(s: Session, obj: Any, keys: tuple, source: Source) -> dict[Any, tuple[Value, Any]]:
    """The whole dictionary."""
    s.guard(source, GuardKind.LENGTH, len(keys))
    entries: dict[Any, tuple[Value, Any]] = {}
    for place, key in enumerate(keys):
        known = s.wrap(key, KeyAt(source, place))
        own = known if isinstance(key, torch.Tensor) else s.hashable(known)
        entries[own] = (known, Lazy(obj[key], Keyed(source, known.source or KeyAt(source, place))))
    return entries
