"""Methods of set, frozenset and of dictionary views, by descriptor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.capture.iteration import set_entries
from dovetail.capture.known.table import methods
from dovetail.capture.values.base import MISSING, NONE, NOT_IMPLEMENTED, Const, Value, boolean
from dovetail.capture.values.containers import SetEntries, SetValue, TupleValue, ViewValue, orders_alike
from dovetail.capture.values.iterators import SetIterator

Method = Callable[..., Any]


def _entries(s: Any, values: Value) -> dict[Any, Value]:
    if isinstance(values, SetValue):
        return values.entries
    found: dict[Any, Value] = {}
    for item in s.unpack(values):
        found.setdefault(s.hashable(item), item)
    return found


def _set_algebra(choose: Callable[[Any, Any], Any], name: str, strict: bool, in_place: bool) -> Method:
    """`name` is the method of real sets that gives the order of the result, or brings it about."""

    def method(s: Any, v: Any, *others: Value) -> Value:
        if strict and not isinstance(others[0], (SetValue, ViewValue)):
            return NOT_IMPLEMENTED
        entries = _entries(s, v) if isinstance(v, SetValue) else {s.hashable(k): k for k in v.all(s)}
        order = entries.order if isinstance(entries, SetEntries) else SetEntries(entries).order
        found = getattr(type(order), name)(order, *(_order(_entries(s, other)) for other in others))
        for other in others:
            theirs = _entries(s, other)
            chosen = choose(dict.fromkeys(entries), dict.fromkeys(theirs))
            first = theirs if _taken_from_other(choose, entries, theirs, other) else entries
            entries = {k: first[k] if k in first else theirs[k] for k in chosen}
        if not in_place:
            made = SetValue(v.cls if v.cls in (set, frozenset) else set)
            made.entries = SetEntries(entries, found)
            return made
        v.entries = SetEntries(entries, order if found is None else found)
        v.mark(s)
        return v if strict else NONE

    return method


def _taken_from_other(choose: Any, entries: Any, theirs: Any, other: Value) -> bool:
    """Of two equal items Python takes the one in the smaller set, or in what is no set."""
    return choose is _intersection and (not isinstance(other, SetValue) or len(theirs) <= len(entries))


def _order(entries: dict[Any, Value]) -> Any:
    """What a real set is given in the place of these entries."""
    return entries.order if isinstance(entries, SetEntries) else list(filter(orders_alike, entries))


def _union(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return list({**a, **b})


def _difference(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return [k for k in a if k not in b]


def _intersection(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return [k for k in a if k in b]


def _symmetric(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return _difference(a, b) + _difference(b, a)


def _relation(test: Callable[[Any, Any], bool], operator: bool) -> Method:
    """An operator compares with sets alone, a method with anything."""

    def related(s: Any, v: Any, other: Value) -> Value:
        if operator and not issubclass(other.cls, SETS):
            return NOT_IMPLEMENTED
        return boolean(test(set(_entries(s, v)), set(_entries(s, other))))

    return related


ALGEBRA = {
    "__or__": (_union, "union", "__ior__", "update"),
    "__sub__": (_difference, "difference", "__isub__", "difference_update"),
    "__and__": (_intersection, "intersection", "__iand__", "intersection_update"),
    "__xor__": (_symmetric, "symmetric_difference", "__ixor__", "symmetric_difference_update"),
}
RELATIONS = {
    "__le__": set.issubset, "issubset": set.issubset, "__ge__": set.issuperset, "issuperset": set.issuperset,
    "isdisjoint": set.isdisjoint, "__eq__": set.__eq__, "__lt__": set.__lt__, "__gt__": set.__gt__,
}  # fmt: skip

VIEWS = tuple(type(getattr({}, kind)()) for kind in ("keys", "values", "items"))
SETS = (set, frozenset, VIEWS[0], VIEWS[2])  # what operators compare with
for _cls in (set, frozenset):
    for _operator, (_choose, _name, _in_place, _update) in ALGEBRA.items():
        methods(_cls, _operator)(_set_algebra(_choose, _name, True, False))
        methods(_cls, _name)(_set_algebra(_choose, _name, False, False))
        if _cls is set:
            methods(set, _in_place)(_set_algebra(_choose, _update, True, True))
            methods(set, _update)(_set_algebra(_choose, _update, False, True))
    for _name, _test in RELATIONS.items():
        methods(_cls, _name)(_relation(_test, _name[0] == "_"))
    methods(_cls, "__contains__")(lambda s, v, key: boolean(s.hashable(key) in v.entries))
    methods(_cls, "__len__")(lambda s, v: Const(len(v.entries)))
    methods(_cls, "__iter__")(lambda s, v: SetIterator(v, v.ordered(s)))
    methods(_cls, "copy")(lambda s, v: _set_algebra(_union, "union", False, False)(s, v))
for _cls in (VIEWS[0], VIEWS[2]):
    for _operator, (_choose, _name, _in_place, _update) in ALGEBRA.items():
        methods(_cls, _operator)(_set_algebra(_choose, _name, False, False))
    for _name in ("__eq__", "__le__", "__ge__", "isdisjoint"):
        methods(_cls, _name)(_relation(RELATIONS[_name], _name[0] == "_"))


@methods(set, "__init__")
def _set_init(s: Any, v: Any, values: Value | None = None) -> None:
    v.entries = SetEntries()
    if values is not None:
        v.entries.take_in(set_entries(s, values))


@methods(set, "add")
def _add(s: Any, v: Any, value: Value) -> None:
    v.add(s, value)


@methods(set, "discard")
def _discard(s: Any, v: Any, value: Value) -> None:
    if v.entries.pop(s.hashable(value), None) is not None:
        v.mark(s)


@methods(set, "remove")
def _set_remove(s: Any, v: Any, value: Value) -> None:
    if v.entries.pop(s.hashable(value), None) is None:
        s.throw(KeyError, value)
    v.mark(s)


@methods(set, "pop")
def _set_pop(s: Any, v: Any) -> Value:
    if not v.entries:
        s.throw(KeyError, "pop from an empty set")
    if len(v.entries) > 1 and (v.real is not MISSING or len(v.entries.order) != len(v.entries)):
        s.unsupported("set-order", "set.pop() takes an item in an order that capture does not know", "Use sorted().")
    order = v.entries.order
    key = order.pop() if order else next(iter(v.entries))  # a set remembers where it took the last one
    found = dict.pop(v.entries, key)
    v.mark(s)
    return found  # type: ignore[no-any-return]


@methods(set, "clear")
def _set_clear(s: Any, v: Any) -> None:
    v.entries.clear()
    v.mark(s)


# ---------------------------------------------------------------- what the operators above do not have


def _differs(s: Any, v: Any, other: Value) -> Value:
    if not issubclass(other.cls, SETS):
        return NOT_IMPLEMENTED
    return boolean(set(_entries(s, v)) != set(_entries(s, other)))


for _cls in (set, frozenset, VIEWS[0], VIEWS[2]):
    methods(_cls, "__ne__")(_differs)
for _cls in VIEWS:
    methods(_cls, "__len__")(lambda s, v: s.length(_traced(s, v)))
    methods(_cls, "__iter__")(lambda s, v: s.iterate(_traced(s, v)))
methods(VIEWS[0], "__contains__")(lambda s, v, key: boolean(_traced(s, v).base.has(s.hashable(key))))


def _traced(s: Any, view: Value) -> Any:
    """Only of a view made inside is the dictionary known."""
    if isinstance(view, ViewValue):
        return view
    return s.unsupported("outside-iterator", f"a {view.cls.__name__} from outside is read", "Read the dictionary.")


@methods(VIEWS[2], "__contains__")
def _items_contain(s: Any, v: Any, pair: Value) -> Value:
    if not isinstance(pair, TupleValue) or len(pair.items) != 2:
        return boolean(False)
    key, value = pair.all(s)
    found = _traced(s, v).base.get(s, s.hashable(key))
    return boolean(found is not None and s.equal(found, value))
