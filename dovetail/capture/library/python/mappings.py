"""Methods of dict, OrderedDict, defaultdict and of an object's `__dict__`, by descriptor."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from dovetail.capture.containers.iteration import each
from dovetail.capture.containers.module_hooks import size
from dovetail.capture.containers.varying_keys import entry, holds, remove_entry
from dovetail.capture.handlers.build import mapping_pairs
from dovetail.capture.outside.wrap import WRAPPERS
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.protocols.operators import native_call
from dovetail.capture.protocols.subscripts import dict_item
from dovetail.capture.tables.known_callables import known, methods
from dovetail.capture.values.base import (
    MISSING,
    NONE,
    NOT_IMPLEMENTED,
    Args,
    Const,
    Kwargs,
    Session,
    Value,
    boolean,
    is_singleton,
)
from dovetail.capture.values.containers import DictValue, TupleValue, ViewValue
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.objects import Lazy
from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import has_literal
from dovetail.ir.source import Item, Source

Method = Callable[..., Any]
YES = Const(True)
BOTH = (dict, OrderedDict)


def wrap_mapping_proxy(s: Session, obj: Any, source: Source | None) -> Value:
    """The mapping behind it may change."""
    value = DictValue(dict, obj, source)
    if source is not None:
        s.guard(source, GuardKind.KEYS, tuple(obj))
    for key, item in obj.items():
        read = source is not None and has_literal(key)
        value.entries[key] = (s.wrap(key, None), Lazy(item, Item(source, key)) if read else s.wrap(item, None))  # type: ignore[arg-type]
    return value


WRAPPERS[MappingProxyType] = wrap_mapping_proxy


@methods(BOTH, "__init__", "update")
def fill(s: Session, v: Any, source: Value | None = None, **kwargs: Value) -> None:
    if source is not None:
        if isinstance(source, (DictValue, NamespaceValue)) or s.has_attr(source, "keys"):
            for key, value in mapping_pairs(s, source):
                _put(s, v, key, value)
        else:
            for number, row in enumerate(each(s, source)):
                _put(s, v, *_pair(s, number, row))
    for name, value in kwargs.items():
        _put(s, v, Const(name), value)


def _pair(s: Session, number: int, row: Value) -> list[Value]:
    if s.static(row.cls, "__iter__") is MISSING and s.static(row.cls, "__getitem__") is MISSING:
        s.throw(TypeError, f"cannot convert dictionary update sequence element #{number} to a sequence")
    pair = s.unpack(row)
    if len(pair) != 2:
        s.throw(ValueError, f"dictionary update sequence element #{number} has length {len(pair)}; 2 is required")
    return pair


def _put(s: Session, v: Any, key: Value, value: Value) -> None:
    if issubclass(v.cls, OrderedDict) and type(s.static(v.cls, "__setitem__")).__name__ == "function":
        s.set_item(v, key, value)
    else:
        _set_item(s, v, key, value)


@methods(BOTH, "__setitem__")
def _set_item(s: Session, v: Any, key: Value, value: Value) -> None:
    if isinstance(v, NamespaceValue):
        v.base.set_instance_attr(s, key.native(), value)
    else:
        v.put(s, key, value)


def _make_dict(cls: type, init: Method) -> None:
    @known(cls)
    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(cls)
        init(s, made, *args, **kwargs)
        return made


for _cls in BOTH:
    _make_dict(_cls, fill)


def _find(s: Session, v: Any, key: Value) -> Value | None:
    return v.get(s, key.native()) if isinstance(v, NamespaceValue) else entry(s, v, key)


@methods(dict, "get")
def _get(s: Session, v: Any, key: Value, default: Value = NONE) -> Value:
    return _find(s, v, key) or default


@methods(BOTH, "pop")
def _dict_pop(s: Session, v: Any, key: Value, default: Value | None = None) -> Value:
    found = _find(s, v, key)
    if found is None:
        return default or s.throw(KeyError, key)
    if isinstance(v, NamespaceValue):
        v.base.del_instance_attr(s, key.native())
    else:
        remove_entry(s, v, key)
    return found


@methods(BOTH, "setdefault")
def _setdefault(s: Session, v: Any, key: Value, default: Value = NONE) -> Value:
    found = _find(s, v, key)
    if found is None:
        _put(s, v, key, default)
    return found or default


@methods(BOTH, "popitem")
def _popitem(s: Session, v: Any, last: Value = YES) -> Value:
    if isinstance(v, NamespaceValue):
        pairs = v.pairs(s)
        if pairs:
            v.base.del_instance_attr(s, pairs[-1][0].native())
        return TupleValue(pairs[-1]) if pairs else native_call(s, {}.popitem)
    at_end = s.truth(last)
    if not v.entries:
        return native_call(s, OrderedDict().popitem if issubclass(v.cls, OrderedDict) else {}.popitem)
    native_key = (list(v.entries) if at_end else list(v.entries)[::-1])[-1]
    pair = (v.entries[native_key][0], v.get(s, native_key))
    if issubclass(v.cls, OrderedDict):
        del v.entries[native_key]
    else:
        v.entries.popitem()
    v.mark(s)
    return TupleValue(pair)


@methods(BOTH, "clear")
def _dict_clear(s: Session, v: Any) -> None:
    if isinstance(v, NamespaceValue):
        for name in v.base.attr_names(s):
            v.base.del_instance_attr(s, name)
        return
    v.entries.clear()
    v.mark(s)


@methods((dict, OrderedDict, defaultdict), "copy")
def _dict_copy(s: Session, v: Any) -> Value:
    if isinstance(v, NamespaceValue):
        made = DictValue()
        fill(s, made, v)
        return made
    made = DictValue(v.cls if v.cls in (dict, OrderedDict, defaultdict) else dict)
    made.entries = {k: (key, v.get(s, k)) for k, (key, _) in v.entries.items()}
    made.default_factory = v.default_factory
    return made


@methods(OrderedDict, "move_to_end")
def _move_to_end(s: Session, v: Any, key: Value, last: Value = YES) -> None:
    native_key = s.hashable(key)
    if native_key not in v.entries:
        s.throw(KeyError, key)
    v.entries.move(native_key, last, s.truth(last))
    v.mark(s)


@methods(dict, "__getitem__")
def _dict_getitem(s: Session, v: Any, key: Value) -> Value:
    if isinstance(v, NamespaceValue):
        return v.get(s, key.native()) or s.throw(KeyError, key)
    return dict_item(s, v, key)


@methods(dict, "__contains__")
def _dict_contains(s: Session, v: Any, key: Value) -> Value:
    if isinstance(v, NamespaceValue):
        return boolean(v.get(s, key.native()) is not None)
    return boolean(holds(s, v, key))


@methods(BOTH, "__delitem__")
def _del_item(s: Session, v: Any, key: Value) -> None:
    _dict_pop(s, v, key)


@methods(BOTH, "__eq__")
def _same_dict(s: Session, v: Any, other: Value) -> Value:
    v, other = (_dict_copy(s, d) if isinstance(d, NamespaceValue) else d for d in (v, other))
    if not isinstance(other, DictValue) or not isinstance(v, DictValue):
        return NOT_IMPLEMENTED
    in_order = issubclass(v.cls, OrderedDict) and issubclass(other.cls, OrderedDict)
    if v.entries.keys() != other.entries.keys():
        return boolean(False)
    places = {key: place for place, key in enumerate(other.entries)}
    if in_order and any(places[key] != place for place, key in enumerate(v.entries)):
        return boolean(False)
    return boolean(all(s.equal(v.get(s, k), other.get(s, k)) for k in v.entries))  # type: ignore[arg-type]


@methods(BOTH, "__ne__")
def _other_dict(s: Session, v: Any, other: Value) -> Value:
    same = _same_dict(s, v, other)
    return same if same is NOT_IMPLEMENTED else boolean(not s.truth(same))


@methods(BOTH, "__or__")
def _merge(s: Session, v: Any, other: Value) -> Value:
    if not isinstance(other, (DictValue, NamespaceValue)):
        return NOT_IMPLEMENTED
    made = _dict_copy(s, v)
    fill(s, made, other)
    return made


@methods(BOTH, "__ior__")
def _imerge(s: Session, v: Any, other: Value) -> Value:
    fill(s, v, other)
    return v


def _view(kind: str) -> Method:
    def view(s: Session, v: Any) -> Value:
        if isinstance(v, NamespaceValue):
            v = _dict_copy(s, v)
        return ViewValue(v, kind)

    return view


methods(BOTH, "__iter__")(lambda s, v: s.iterate(_view("keys")(s, v)))
for _kind in ("keys", "values", "items"):
    methods(BOTH, _kind)(_view(_kind))
NATIVE_ATTRIBUTES[(defaultdict, "default_factory")] = lambda s, v: v.default_factory or NONE


@methods(dict, "__len__")
def _len(s: Session, v: Any) -> Value:
    hooks = size(s, v) if isinstance(v, DictValue) else None
    return hooks or Const(len(v.pairs(s)))


@methods(defaultdict, "__init__")
def _defaultdict_init(s: Session, v: Any, factory: Value = NONE, *args: Value, **kwargs: Value) -> None:
    if not is_singleton(factory, None) and not s.truth(s.call(s.wrap(callable, None), factory)):
        s.throw(TypeError, "first argument must be callable or None")
    v.default_factory = None if isinstance(factory, Const) else factory
    fill(s, v, *args, **kwargs)


_make_dict(defaultdict, _defaultdict_init)


@known(dict.__dict__["fromkeys"], OrderedDict.__dict__["fromkeys"])
def _fromkeys(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls, keys, *values = args
    made = s.call(cls)
    for key in each(s, keys):
        s.set_item(made, key, values[0] if values else NONE)
    return made
