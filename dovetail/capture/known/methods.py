"""Methods of list, tuple, deque, dict, set and their relatives, by descriptor.

`super().__setitem__(...)` in a subclass, `list.append(x, 1)` and `x.append(1)` all arrive here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.handlers.build import mapping_pairs
from dovetail.capture.known.builtins import sort_values
from dovetail.capture.known.table import KNOWN, known
from dovetail.capture.operators import COMPARE, dict_item, mark, sequence_item, sequence_store
from dovetail.capture.values.base import NONE, NOT_IMPLEMENTED, Const, Value, boolean
from dovetail.capture.values.containers import (
    DictValue,
    ListValue,
    SequenceValue,
    SetValue,
    TupleValue,
    ViewValue,
)
from dovetail.capture.values.iterators import NativeIterator, SequenceIterator
from dovetail.capture.values.views import NamespaceValue

Args = list[Value]
Kwargs = dict[str, Value]
Method = Callable[..., Any]


def methods(cls: type, *names: str) -> Callable[[Method], Method]:
    """Register `function(s, receiver, *args, **kwargs)`; a result of None is Python's None."""

    def register(function: Method) -> Method:
        def handler(s: Any, args: Args, kwargs: Kwargs) -> Value:
            try:
                result = function(s, *args, **kwargs)
            except TypeError as error:
                if "positional argument" not in str(error) and "unexpected keyword" not in str(error):
                    raise
                return s.throw(TypeError, str(error))
            return NONE if result is None else result

        for name in names:
            known(cls.__dict__[name])(handler)
        return function

    return register


# ---------------------------------------------------------------- sequences


@methods(list, "__init__")
def _list_init(s: Any, v: Any, values: Any = None) -> None:
    v.items = s.unpack(values) if values is not None else []


@methods(deque, "__init__")
def _deque_init(s: Any, v: Any, iterable: Any = None, maxlen: Any = NONE) -> None:
    v.maxlen = maxlen.native()
    v.items = s.unpack(iterable) if iterable is not None else []
    _trim(v)


def _trim(v: Any, left: bool = False) -> None:
    if v.maxlen is not None and len(v.items) > v.maxlen:
        v.items = v.items[: v.maxlen] if left else v.items[len(v.items) - v.maxlen :]


@known(deque)
def _deque(s: Any, args: Args, kwargs: Kwargs) -> Value:
    made = ListValue([], deque)
    _deque_init(s, made, *args, **kwargs)
    return made


def _append(s: Any, v: Any, value: Value) -> None:
    v.items.append(value)
    _trim(v)
    mark(s, v)


def _extend(s: Any, v: Any, values: Value) -> None:
    v.items.extend(s.unpack(values))
    _trim(v)
    mark(s, v)


methods(list, "append")(_append)
methods(deque, "append")(_append)
methods(list, "extend")(_extend)
methods(deque, "extend")(_extend)


@methods(list, "__iadd__")
def _iadd(s: Any, v: Any, values: Value) -> Value:
    _extend(s, v, values)
    return v


methods(deque, "__iadd__")(_iadd)


@methods(deque, "appendleft")
def _appendleft(s: Any, v: Any, value: Value) -> None:
    v.items.insert(0, value)
    _trim(v, left=True)
    mark(s, v)


@methods(deque, "popleft")
def _popleft(s: Any, v: Any) -> Value:
    return _pop(s, v, Const(0))


def _pop(s: Any, v: Any, index: Value = Const(-1)) -> Value:
    if not v.items:
        s.throw(IndexError, f"pop from empty {v.cls.__name__}")
    found = sequence_item(s, v, index)
    del v.items[index.native()]
    mark(s, v)
    return found


methods(list, "pop")(_pop)
methods(deque, "pop")(_pop)


def _insert(s: Any, v: Any, index: Value, value: Value) -> None:
    v.items.insert(index.native(), value)
    mark(s, v)


def _clear(s: Any, v: Any) -> None:
    v.items = []
    mark(s, v)


def _reverse(s: Any, v: Any) -> None:
    v.items = v.items[::-1]
    mark(s, v)


def _remove(s: Any, v: Any, value: Value) -> None:
    del v.items[_position(s, v, value)]
    mark(s, v)


def _position(s: Any, v: Any, value: Value) -> int:
    for k, item in enumerate(v.all(s)):
        if s.equal(item, value):
            return k
    return s.throw(ValueError, f"value is not in {v.cls.__name__}")


def _index(s: Any, v: Any, value: Value, start: Value = Const(0), stop: Value = NONE) -> Value:
    items = v.all(s)
    for k in range(*slice(start.native(), stop.native()).indices(len(items))):
        if s.equal(items[k], value):
            return Const(k)
    return s.throw(ValueError, f"value is not in {v.cls.__name__}")


def _count(s: Any, v: Any, value: Value) -> Value:
    return Const(sum(s.equal(item, value) for item in v.all(s)))


def _copy(s: Any, v: Any) -> Value:
    made = ListValue(v.all(s), deque if issubclass(v.cls, deque) else list)
    made.maxlen = v.maxlen
    return made


for _cls in (list, deque):
    methods(_cls, "insert")(_insert)
    methods(_cls, "clear")(_clear)
    methods(_cls, "reverse")(_reverse)
    methods(_cls, "remove")(_remove)
    methods(_cls, "copy")(_copy)


@methods(list, "sort")
def _sort(s: Any, v: Any, **kwargs: Value) -> None:
    v.items = sort_values(s, v.all(s), kwargs)
    mark(s, v)


@methods(deque, "rotate")
def _rotate(s: Any, v: Any, count: Value = Const(1)) -> None:
    turned: deque[Any] = deque(v.items)
    turned.rotate(count.native())
    v.items = list(turned)
    mark(s, v)


def _sequence_add(s: Any, v: Any, other: Value) -> Value:
    kind = TupleValue if isinstance(v, TupleValue) else ListValue
    if not isinstance(other, kind):
        return NOT_IMPLEMENTED
    return kind([*v.all(s), *other.all(s)], _plain_class(v))


def _plain_class(v: Any) -> type:
    return v.cls if v.cls.__name__ == "Size" else tuple if isinstance(v, TupleValue) else list


def _sequence_mul(s: Any, v: Any, count: Value) -> Value:
    if not isinstance(count, Const) or not isinstance(count.value, int):
        return NOT_IMPLEMENTED
    return type(v)(v.all(s) * count.value, _plain_class(v))


def _imul(s: Any, v: Any, count: Value) -> Value:
    v.items = v.all(s) * count.native()
    mark(s, v)
    return v


methods(list, "__imul__")(_imul)


def _sequence_contains(s: Any, v: Any, value: Value) -> Value:
    return boolean(any(s.equal(item, value) for item in v.all(s)))


def _sequence_compare(sign: str) -> Method:
    function, _, _ = COMPARE[sign]

    def method(s: Any, v: Any, other: Value) -> Value:
        if not isinstance(other, SequenceValue) or isinstance(v, TupleValue) is not isinstance(other, TupleValue):
            return NOT_IMPLEMENTED
        left, right = v.all(s), other.all(s)
        for a, b in zip(left, right):
            if not s.equal(a, b):
                if sign in ("==", "!="):
                    return boolean(sign == "!=")
                return s.compare(sign, a, b)
        return boolean(function(len(left), len(right)))

    return method


for _cls in (list, tuple, deque):
    for _sign, (_, _name, _) in COMPARE.items():
        methods(_cls, _name)(_sequence_compare(_sign))
    methods(_cls, "__add__")(_sequence_add)
    methods(_cls, "__mul__")(_sequence_mul)
    methods(_cls, "__contains__")(_sequence_contains)
    methods(_cls, "__getitem__")(sequence_item)
    methods(_cls, "__iter__")(lambda s, v: SequenceIterator(v))
    methods(_cls, "__len__")(lambda s, v: Const(len(v.items)))
    methods(_cls, "index")(_index)
    methods(_cls, "count")(_count)
for _cls in (list, tuple):
    methods(_cls, "__rmul__")(_sequence_mul)
for _cls in (list, deque):
    methods(_cls, "__setitem__")(sequence_store)
    methods(_cls, "__delitem__")(lambda s, v, index: sequence_store(s, v, index, None))
for _name in ("__add__", "__mul__", "__rmul__", "__getitem__"):
    if _name in torch.Size.__dict__:
        known(torch.Size.__dict__[_name])(KNOWN[tuple.__dict__[_name]])
if "__radd__" in torch.Size.__dict__:
    methods(torch.Size, "__radd__")(lambda s, v, other: TupleValue([*other.all(s), *v.all(s)], torch.Size))
methods(list, "__reversed__")(lambda s, v: NativeIterator(iter(v.all(s)[::-1])))
known(tuple.__hash__)(lambda s, args, kwargs: Const(hash(s.hashable(args[0]))))


# ---------------------------------------------------------------- dictionaries


def fill(s: Any, v: Any, source: Value | None = None, **kwargs: Value) -> None:
    """`dict.update`."""
    if source is not None:
        if isinstance(source, (DictValue, NamespaceValue)) or s.has_attr(source, "keys"):
            pairs = mapping_pairs(s, source)
        else:
            pairs = [tuple(s.unpack(row)) for row in s.unpack(source)]  # type: ignore[misc]
        for key, value in pairs:
            _put(s, v, key, value)
    for name, value in kwargs.items():
        _put(s, v, Const(name), value)


def _put(s: Any, v: Any, key: Value, value: Value) -> None:
    if isinstance(v, NamespaceValue):
        v.base.set_instance_attr(s, key.native(), value)
    elif type(s.static(v.cls, "__setitem__")).__name__ == "function" and issubclass(v.cls, OrderedDict):
        s.set_item(v, key, value)
    else:
        v.put(s, key, value)


def _make_dict(cls: type) -> Any:
    def make(s: Any, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(cls)
        fill(s, made, *args, **kwargs)
        return made

    return make


known(dict)(_make_dict(dict))
known(OrderedDict)(_make_dict(OrderedDict))


@known(defaultdict)
def _defaultdict(s: Any, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue(defaultdict)
    made.default_factory = args[0] if args and not isinstance(args[0], Const) else None
    fill(s, made, *args[1:], **kwargs)
    return made


@methods(dict, "get")
def _get(s: Any, v: Any, key: Value, default: Value = NONE) -> Value:
    if isinstance(v, NamespaceValue):
        return v.base.instance_attr(s, key.native()) or default
    return v.get(s, s.hashable(key)) or default


@methods(dict, "pop")
def _dict_pop(s: Any, v: Any, key: Value, default: Value | None = None) -> Value:
    if isinstance(v, NamespaceValue):
        found = v.base.instance_attr(s, key.native())
        v.base.del_instance_attr(s, key.native())
        return found or default or s.throw(KeyError, key)
    native_key = s.hashable(key)
    found = v.get(s, native_key)
    if found is None:
        return default if default is not None else s.throw(KeyError, key)
    del v.entries[native_key]
    v.mark(s)
    return found


@methods(dict, "setdefault")
def _setdefault(s: Any, v: Any, key: Value, default: Value = NONE) -> Value:
    found = v.get(s, s.hashable(key))
    if found is None:
        _put(s, v, key, default)
        found = default
    return found


@methods(dict, "popitem")
def _popitem(s: Any, v: Any, last: Value = Const(True)) -> Value:
    if not v.entries:
        s.throw(KeyError, "popitem(): dictionary is empty")
    native_key = (list(v.entries) if s.truth(last) else list(v.entries)[::-1])[-1]
    pair = (v.entries[native_key][0], v.get(s, native_key))
    del v.entries[native_key]
    v.mark(s)
    return TupleValue(pair)


@methods(dict, "clear")
def _dict_clear(s: Any, v: Any) -> None:
    v.entries.clear()
    v.mark(s)


@methods(dict, "copy")
def _dict_copy(s: Any, v: Any) -> Value:
    if isinstance(v, NamespaceValue):
        made = DictValue()
        fill(s, made, v)
        return made
    made = DictValue(v.cls if v.cls in (dict, OrderedDict, defaultdict) else dict)
    made.entries = {k: (key, v.get(s, k)) for k, (key, _) in v.entries.items()}
    made.default_factory = v.default_factory
    return made


@methods(OrderedDict, "move_to_end")
def _move_to_end(s: Any, v: Any, key: Value, last: Value = Const(True)) -> None:
    native_key = s.hashable(key)
    entry = v.entries.pop(native_key, None)
    if entry is None:
        s.throw(KeyError, key)
    v.entries = {**v.entries, native_key: entry} if s.truth(last) else {native_key: entry, **v.entries}
    v.mark(s)


@methods(dict, "__getitem__")
def _dict_getitem(s: Any, v: Any, key: Value) -> Value:
    if isinstance(v, NamespaceValue):
        return v.base.instance_attr(s, key.native()) or s.throw(KeyError, key)
    return dict_item(s, v, key)


@methods(dict, "__contains__")
def _dict_contains(s: Any, v: Any, key: Value) -> Value:
    if isinstance(v, NamespaceValue):
        return boolean(v.base.instance_attr(s, key.native()) is not None)
    return boolean(s.hashable(key) in v.entries)


def _del_item(s: Any, v: Any, key: Value) -> None:
    _dict_pop(s, v, key)


def _same_dict(s: Any, v: Any, other: Value) -> Value:
    if not isinstance(other, DictValue) or not isinstance(v, DictValue):
        return NOT_IMPLEMENTED
    if list(v.entries) != list(other.entries) and set(v.entries) != set(other.entries):
        return boolean(False)
    return boolean(all(s.equal(v.get(s, k), other.get(s, k)) for k in v.entries))


def _merge(s: Any, v: Any, other: Value) -> Value:
    if not isinstance(other, DictValue):
        return NOT_IMPLEMENTED
    made = _dict_copy(s, v)
    fill(s, made, other)
    return made


def _imerge(s: Any, v: Any, other: Value) -> Value:
    fill(s, v, other)
    return v


def _view(kind: str) -> Method:
    def view(s: Any, v: Any) -> Value:
        if isinstance(v, NamespaceValue):
            part = {"keys": 0, "values": 1}.get(kind)
            rows = v.pairs(s)
            return ListValue([TupleValue(r) if part is None else r[part] for r in rows])
        return ViewValue(v, kind)

    return view


for _cls in (dict, OrderedDict):
    methods(_cls, "__init__", "update")(fill)
    methods(_cls, "__setitem__")(lambda s, v, key, value: _raw_put(s, v, key, value))
    methods(_cls, "__delitem__")(_del_item)
    methods(_cls, "__eq__")(_same_dict)
    methods(_cls, "__or__")(_merge)
    methods(_cls, "__ior__")(_imerge)
    methods(_cls, "__iter__")(lambda s, v: s.iterate(_view("keys")(s, v)))
    for _kind in ("keys", "values", "items"):
        methods(_cls, _kind)(_view(_kind))
methods(dict, "__len__")(lambda s, v: Const(len(v.pairs(s))))
methods(OrderedDict, "pop")(_dict_pop)
methods(OrderedDict, "setdefault")(_setdefault)
methods(OrderedDict, "popitem")(_popitem)
methods(OrderedDict, "clear")(_dict_clear)
methods(OrderedDict, "copy")(_dict_copy)
methods(defaultdict, "copy")(_dict_copy)


def _raw_put(s: Any, v: Any, key: Value, value: Value) -> None:
    if isinstance(v, NamespaceValue):
        v.base.set_instance_attr(s, key.native(), value)
    else:
        v.put(s, key, value)


@methods(defaultdict, "__init__")
def _defaultdict_init(s: Any, v: Any, factory: Value = NONE, *args: Value, **kwargs: Value) -> None:
    v.default_factory = None if isinstance(factory, Const) else factory
    fill(s, v, *args, **kwargs)


@known(dict.__dict__["fromkeys"], dict.fromkeys, OrderedDict.fromkeys)
def _fromkeys(s: Any, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue()
    for key in s.unpack(args[0]):
        made.put(s, key, args[1] if len(args) > 1 else NONE)
    return made


# ---------------------------------------------------------------- sets


def _entries(s: Any, values: Value) -> dict[Any, Value]:
    if isinstance(values, SetValue):
        return values.entries
    return {s.hashable(item): item for item in s.unpack(values)}


def _set_algebra(choose: Callable[[Any, Any], Any], strict: bool, in_place: bool) -> Method:
    def method(s: Any, v: Any, *others: Value) -> Value:
        if strict and not isinstance(others[0], (SetValue, ViewValue)):
            return NOT_IMPLEMENTED
        entries = _entries(s, v) if isinstance(v, SetValue) else {s.hashable(k): k for k in v.all(s)}
        for other in others:
            theirs = _entries(s, other)
            chosen = choose(dict.fromkeys(entries), dict.fromkeys(theirs))
            entries = {k: entries.get(k) or theirs[k] for k in chosen}
        if not in_place:
            made = SetValue(v.cls if v.cls in (set, frozenset) else set)
            made.entries = dict(entries)
            return made
        v.entries = dict(entries)
        v.mark(s)
        return v if strict else NONE

    return method


def _union(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return list({**a, **b})


def _difference(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return [k for k in a if k not in b]


def _intersection(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return [k for k in a if k in b]


def _symmetric(a: dict[Any, None], b: dict[Any, None]) -> list[Any]:
    return _difference(a, b) + _difference(b, a)


def _relation(test: Callable[[Any, Any], bool]) -> Method:
    return lambda s, v, other: boolean(test(set(_entries(s, v)), set(_entries(s, other))))


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
for _cls in (set, frozenset):
    for _operator, (_choose, _name, _in_place, _update) in ALGEBRA.items():
        methods(_cls, _operator)(_set_algebra(_choose, True, False))
        methods(_cls, _name)(_set_algebra(_choose, False, False))
        if _cls is set:
            methods(set, _in_place)(_set_algebra(_choose, True, True))
            methods(set, _update)(_set_algebra(_choose, False, True))
    for _name, _test in RELATIONS.items():
        methods(_cls, _name)(_relation(_test))
    methods(_cls, "__contains__")(lambda s, v, key: boolean(s.hashable(key) in v.entries))
    methods(_cls, "__len__")(lambda s, v: Const(len(v.entries)))
    methods(_cls, "__iter__")(lambda s, v: NativeIterator(iter(list(v.entries.values()))))
    methods(_cls, "copy")(lambda s, v: _set_algebra(_union, False, False)(s, v))
for _cls in (VIEWS[0], VIEWS[2]):
    for _operator, (_choose, _name, _in_place, _update) in ALGEBRA.items():
        methods(_cls, _operator)(_set_algebra(_choose, False, False))
    for _name in ("__eq__", "__le__", "__ge__", "isdisjoint"):
        methods(_cls, _name)(_relation(RELATIONS[_name]))


@methods(set, "__init__")
def _set_init(s: Any, v: Any, values: Value | None = None) -> None:
    v.entries = dict(_entries(s, values)) if values is not None else {}


@methods(set, "add")
def _add(s: Any, v: Any, value: Value) -> None:
    v.entries.setdefault(s.hashable(value), value)
    v.mark(s)


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
    if len(v.entries) > 1:
        s.unsupported("set-order", "set.pop() takes an item in an order that capture does not know", "Use sorted().")
    v.mark(s)
    return v.entries.popitem()[1]


@methods(set, "clear")
def _set_clear(s: Any, v: Any) -> None:
    v.entries.clear()
    v.mark(s)
