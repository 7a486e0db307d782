"""Methods of set, frozenset and of dictionary views, by descriptor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail.capture.containers.hashing import member, set_entries
from dovetail.capture.containers.iteration import each
from dovetail.capture.tables.known_callables import methods
from dovetail.capture.values.base import MISSING, NOT_IMPLEMENTED, Const, Session, Value, boolean
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, TupleValue, ViewValue
from dovetail.capture.values.iterators import SetIterator
from dovetail.capture.values.sets import SetEntries, SetValue, orders_alike

Method = Callable[..., Any]
Choose = Callable[[Any, Any], list]


def _algebra(choose: Choose, name: str, entries: SetEntries, theirs: dict[Any, Value], other: Value) -> SetEntries:
    """Both, combined. `name` is the method of real sets that gives the order of the result, or brings it about."""
    found = getattr(type(entries.order), name)(entries.order, _order(theirs))
    # of two equal items Python takes the one in the smaller set, or in what is no set
    taken = choose is _intersection and (not isinstance(other, SetValue) or len(theirs) <= len(entries))
    first = theirs if taken else entries
    chosen = choose(dict.fromkeys(entries), dict.fromkeys(theirs))
    made = {k: first[k] if k in first else theirs[k] for k in chosen}
    return SetEntries(made, entries.order if found is None else found)


def _order(entries: dict[Any, Value]) -> Any:
    """What a real set is given in the place of these entries."""
    if isinstance(entries, SetEntries):
        return entries.order
    known = filter(orders_alike, entries)
    return list(known) if hasattr(entries, "order") else dict.fromkeys(known)


def _made(entries: SetEntries, cls: type = set) -> SetValue:
    made = SetValue(cls if cls in (set, frozenset) else set)
    made.entries = entries
    return made


def _set_operator(choose: Choose, name: str, reflected: bool) -> Method:
    def operator(s: Session, v: Any, other: Value) -> Value:
        if not isinstance(other, SetValue):
            return NOT_IMPLEMENTED
        first, second = (other, v) if reflected else (v, other)
        return _made(_algebra(choose, name, first.entries, second.entries, second), first.cls)

    return operator


def _set_method(choose: Choose, name: str) -> Method:
    def method(s: Session, v: Any, *others: Value) -> Value:
        entries = SetEntries(v.entries, type(v.entries.order)(v.entries.order))
        for other in others:
            entries = _algebra(choose, name, entries, set_entries(s, other), other)
        return _made(entries, v.cls)

    return method


def _in_place_operator(update: Method) -> Method:
    def operator(s: Session, v: Any, other: Value) -> Value:
        if not isinstance(other, SetValue):
            return NOT_IMPLEMENTED
        update(s, v, other)
        return v

    return operator


def _update(choose: Choose, name: str) -> Method:
    """An update that has an effect once everything it is given has been read."""

    def method(s: Session, v: Any, *others: Value) -> None:
        entries = v.entries
        for other in others:
            entries = _algebra(choose, name, entries, set_entries(s, other), other)
        v.entries = entries
        v.mark(s)

    return method


def _step_by_step(choose: Choose, name: str, change: Callable[..., None]) -> Method:
    """The others: of an iterator, what came before an error has had its effect."""
    whole = _update(choose, name)

    def method(s: Session, v: Any, *others: Value) -> None:
        for other in others:
            if isinstance(other, (SetValue, DictValue, SequenceValue)):
                whole(s, v, other)
                continue
            for item in each(s, other):
                change(s, v, item)
            whole(s, v, ListValue([]))  # a real set may give back room that it needs no more

    return method


def _view_operator(choose: Choose, name: str, reflected: bool) -> Method:
    """Of a view the operators take anything that can be walked, and give a new set."""

    def operator(s: Session, v: Any, other: Value) -> Value:
        entries = SetEntries()
        if choose is _intersection:
            held, theirs = _held(s, v), set_entries(s, other)
            walked = held if isinstance(other, (SetValue, ViewValue)) and len(held) < len(theirs) else _ordered(theirs)
            for key in _intersection(walked, theirs if walked is held else held):
                entries[key] = theirs[key]
            return _made(entries)
        first, second = (other, v) if reflected else (v, other)
        entries.take_in(_held(s, first))
        return _made(_algebra(choose, name, entries, set_entries(s, second), second))

    return operator


def _held(s: Session, operand: Value) -> dict[Any, Value]:
    """A set that is made of the keys of a dictionary takes them in as those of the dictionary."""
    base = operand.base if isinstance(operand, ViewValue) and operand.kind == "keys" else operand
    return set_entries(s, base)


def _ordered(entries: dict[Any, Value]) -> dict[Any, Value]:
    known = entries.order if isinstance(entries, SetEntries) and len(entries.order) == len(entries) else entries
    return {key: entries[key] for key in known}


def _union(a: dict[Any, None], b: dict[Any, None]) -> list:
    return list({**a, **b})


def _difference(a: dict[Any, None], b: dict[Any, None]) -> list:
    return [k for k in a if k not in b]


def _intersection(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> list:
    return [k for k in a if k in b]


def _symmetric(a: dict[Any, None], b: dict[Any, None]) -> list:
    return _difference(a, b) + _difference(b, a)


def _relation(test: Callable[[Any, Any], bool], operator: bool) -> Method:
    """An operator compares with sets alone, a method with anything."""

    def related(s: Session, v: Any, other: Value) -> Value:
        if operator and not issubclass(other.cls, _compared(v)):
            return NOT_IMPLEMENTED
        if test not in STOPPING or isinstance(other, (SetValue, DictValue)):
            return boolean(test(set(set_entries(s, v)), set(set_entries(s, other))))
        held, wanted = set_entries(s, v), test is set.issuperset
        return boolean(all((s.hashable(item) in held) is wanted for item in each(s, other)))

    return related


#: Of an iterator these take no more items than they need for the answer.
STOPPING = (set.issuperset, set.isdisjoint)


def _compared(v: Value) -> tuple[type, ...]:
    """What operators compare with: sets leave views to the views."""
    return (set, frozenset) if isinstance(v, SetValue) else SETS


ALGEBRA = {
    "__or__": (_union, "union", "__ior__", "update"),
    "__sub__": (_difference, "difference", "__isub__", "difference_update"),
    "__and__": (_intersection, "intersection", "__iand__", "intersection_update"),
    "__xor__": (_symmetric, "symmetric_difference", "__ixor__", "symmetric_difference_update"),
}
RELATIONS = {
    "__le__": set.issubset, "issubset": set.issubset, "__ge__": set.issuperset, "issuperset": set.issuperset,
    "isdisjoint": set.isdisjoint, "__lt__": set.__lt__, "__gt__": set.__gt__, "__eq__": set.__eq__,
    "__ne__": set.__ne__,
}  # fmt: skip

VIEWS = tuple(type(getattr({}, kind)()) for kind in ("keys", "values", "items"))
SET_VIEWS = (VIEWS[0], VIEWS[2])
SETS = (set, frozenset, *SET_VIEWS)


@methods(set, "discard")
def _discard(s: Session, v: Any, value: Value) -> None:
    if v.entries.pop(member(s, value), None) is not None:
        v.mark(s)


_CHANGES: dict[str, Callable[..., None]] = {
    "update": lambda s, v, item: v.add(s, item),
    "difference_update": lambda s, v, item: _discard(s, v, item),
}
for _operator, (_choose, _name, _in_place, _change) in ALGEBRA.items():
    _reflected = f"__r{_operator[2:]}"
    methods((set, frozenset), _operator)(_set_operator(_choose, _name, False))
    methods((set, frozenset), _reflected)(_set_operator(_choose, _name, True))
    methods((set, frozenset), _name)(_set_method(_choose, _name))
    _all = _step_by_step(_choose, _change, _CHANGES[_change]) if _change in _CHANGES else _update(_choose, _change)
    methods(set, _change)(_all)
    methods(set, _in_place)(_in_place_operator(_all))
    methods(SET_VIEWS, _operator)(_view_operator(_choose, _change, False))
    methods(SET_VIEWS, _reflected)(_view_operator(_choose, _change, True))
for _name, _test in RELATIONS.items():
    methods((set, frozenset), _name)(_relation(_test, _name[0] == "_"))
methods((set, frozenset), "__contains__")(lambda s, v, key: boolean(member(s, key) in v.entries))
methods((set, frozenset), "__len__")(lambda s, v: Const(len(v.entries)))
methods((set, frozenset), "__iter__")(lambda s, v: SetIterator(v, v.ordered(s)))
methods(set, "add")(lambda s, v, value: v.add(s, value))
methods(set, "copy")(_set_method(_union, "union"))
methods(frozenset, "copy")(lambda s, v: v if v.cls is frozenset else _made(v.entries, frozenset))
for _name in ("__eq__", "__ne__", "__le__", "__ge__", "__lt__", "__gt__", "isdisjoint"):
    methods(SET_VIEWS, _name)(_relation(RELATIONS[_name], _name[0] == "_"))


@methods(set, "__init__")
def _set_init(s: Session, v: Any, values: Value | None = None) -> None:
    v.entries = SetEntries()
    if values is not None:
        s.call_method(v, "update", values)


@methods(set, "remove")
def _set_remove(s: Session, v: Any, value: Value) -> None:
    if v.entries.pop(member(s, value), None) is None:
        s.throw(KeyError, value)
    v.mark(s)


@methods(set, "pop")
def _set_pop(s: Session, v: Any) -> Value:
    if not v.entries:
        s.throw(KeyError, "pop from an empty set")
    if len(v.entries) > 1 and (v.real is not MISSING or len(v.entries.order) != len(v.entries)):
        s.unsupported("set-order", "set.pop() takes an item in an order that capture does not know")
    order = v.entries.order
    key = order.pop() if order else next(iter(v.entries))  # a set remembers where it took the last one
    found = dict.pop(v.entries, key)
    v.mark(s)
    return found


@methods(set, "clear")
def _set_clear(s: Session, v: Any) -> None:
    v.entries.clear()
    v.mark(s)


# ---------------------------------------------------------------- what the operators above do not have


methods(VIEWS, "__len__")(lambda s, v: s.length(_traced(s, v)))
methods(VIEWS, "__iter__")(lambda s, v: s.iterate(_traced(s, v)))
methods(VIEWS[0], "__contains__")(lambda s, v, key: boolean(_traced(s, v).base.has(s.hashable(key))))


def _traced(s: Session, view: Value) -> Any:
    """Only of a view made inside is the dictionary known."""
    if isinstance(view, ViewValue):
        return view
    return s.unsupported("outside-iterator", f"a {view.cls.__name__} from outside is read", "Read the dictionary.")


@methods(VIEWS[2], "__contains__")
def _items_contain(s: Session, v: Any, pair: Value) -> Value:
    if not isinstance(pair, TupleValue) or len(pair.items) != 2:
        return boolean(False)
    key, value = pair.all(s)
    found = _traced(s, v).base.get(s, s.hashable(key))
    return boolean(found is not None and s.equal(found, value))
