"""Effects → Python text of the residual: lines that bring objects from outside to their final state."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any

from dovetail.capture.containers.hashing import UserKey
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.residual.rebuild import Rebuilder
from dovetail.capture.tensors import gradient_hooks
from dovetail.capture.values.base import MISSING, Const, Value
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.containers import DictValue, ListValue
from dovetail.capture.values.descriptors import ClassStore
from dovetail.capture.values.objects import Lazy, ObjectValue, real_dict
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.unread_span import Span
from dovetail.ir.captured import HOOKS, Change
from dovetail.ir.literals import has_literal
from dovetail.ir.source import Arg


def effects(rebuilder: Rebuilder) -> list[str]:
    """Lines that replay every change to objects from outside, in the order of first change."""
    recorded, replay = rebuilder.s.effects, gradient_hooks.lines(rebuilder.s, rebuilder)
    hooked = [handle.node.meta.get("stack", ()) for handle in rebuilder.s.gradients.hooks] if replay else []
    rebuilder.changes += [replace(HOOKS, stack=stack) for stack in hooked]
    for value in recorded.touched.values():
        for kind, writer in WRITERS.items():
            lines = writer(rebuilder, value) if isinstance(value, kind) else []
            rebuilder.changes += _changes_of(rebuilder, value) if lines else []
            replay += lines
    for (_, name), (scope, value) in recorded.globals.items():
        source = scope.source(rebuilder.s, name)
        source = source if source is not None else rebuilder.s.bind(scope.table, "globals").item(name)
        replay.append(f"del {source.expr()}" if value is MISSING else f"{source.expr()} = {rebuilder.expr(value)}")
        rebuilder.changes.append(Change("object", f"the global variable {name}", stack=recorded.place(scope, name)))
    rebuilder.changes += [Change("call", name) for name in recorded.left_out]
    for function, args, kwargs in recorded.calls:
        values = [rebuilder.expr(a) for a in args] + [f"{k}={rebuilder.expr(v)}" for k, v in kwargs.items()]
        replay.append(f"{rebuilder.expr(function)}({', '.join(values)})")
    return replay


def _changes_of(rebuilder: Rebuilder, value: Any) -> list[Change]:
    if isinstance(value.source, Arg) and f"**{value.source.param}" in rebuilder.s.residual.header:
        return []  # a dictionary that each call makes anew
    name = value.source.name() if value.source is not None else value.describe()
    place = rebuilder.s.effects.place
    if written := getattr(value, "written", ()):
        changed = [attribute for attribute in written if not _as_before(value, attribute)]
        of = {"source": value.source}
        return [Change("object", f"{name}.{attribute}", stack=place(value, attribute), **of) for attribute in changed]
    if getattr(value.source, "field", "") == "_buffers":
        return [Change("buffers", name, value.real, place(value))]
    return [Change("object", name, stack=place(value), source=value.source)]


def _as_before(value: ObjectValue, attribute: str) -> bool:
    """Has it the constant again that it had when the program began?"""
    new, old = value.attrs[attribute], real_dict(value.real).get(attribute, MISSING)
    if type(new) is not Const:  # the value of one that is late would be decided, and guarded, by asking
        return False
    return new.value is old or type(new.value) is type(old) and has_literal(old) and bool(new.value == old)


def write_attributes(rebuilder: Rebuilder, value: ObjectValue) -> list[str]:
    """Lines that store the attributes that the program stored."""
    if value.real is MISSING and value.source is None or not value.written:
        return []
    target = rebuilder.expr(value)
    own = value.cls.__setattr__  # a native one of its own is the only way to store
    store = "_set" if own is object.__setattr__ or isinstance(own, FunctionType) else rebuilder.known(setattr)
    out = []
    for name in value.written:
        found = value.attrs[name]
        if found is not MISSING:
            out.append(rebuilder.store(value, target, name, rebuilder.expr(found), store))
        elif name in real_dict(value.real):
            out.append(f"_del({target}, {name!r})")
    return out


def _if_changed(write: Callable[[Rebuilder, Any], list[str]]) -> Callable[[Rebuilder, Any], list[str]]:
    return lambda rebuilder, value: [] if value.real is MISSING or not value.changed else write(rebuilder, value)


def write_list(rebuilder: Rebuilder, value: ListValue) -> list[str]:
    """Lines that give a list from outside its items."""
    target = rebuilder.expr(value)
    if value.span is not None:
        write = _write_deque_ends if issubclass(value.cls, deque) else _write_ends
        return write(rebuilder, value, value.span, target)
    items = ", ".join(rebuilder.expr(item) for item in value.items)
    if issubclass(value.cls, deque):
        items = rebuilder.local(f"[{items}]")
        if not value.moves:  # who walks it may go on
            return [f"for _k, _i in enumerate({items}): {target}[_k] = _i"]
        return [f"{rebuilder.known(stir)}({target})", f"{target}.clear()", f"{target}.extend({items})"]
    return [f"{rebuilder.known(list)}.__setitem__({target}, slice(None), [{items}])"]


def _write_ends(rebuilder: Rebuilder, value: ListValue, span: Span, target: str) -> list[str]:
    """What is unread stays, with what was read or put there on either side of it."""
    head, tail = (f"[{', '.join(rebuilder.expr(item) for item in part)}]" for part in (value.head, value.tail))
    store, made = f"{rebuilder.known(list)}.__setitem__", span.stores.made if span.stores is not None else ()
    out = [f"{store}({target}, {_places(rebuilder, *splice)})" for splice in made]
    if span.back:
        out.append(f"{store}({target}, slice(-{span.back}, None), {tail})")
    elif value.tail:
        out.append(f"{rebuilder.known(list)}.extend({target}, {tail})")
    return [*out, f"{store}({target}, slice(0, {span.front}), {head})"] if span.front or value.head else out


def stir(queue: deque[Any]) -> None:
    """Let whoever walks a deque see that it has changed, though it holds what it held."""
    items = [*queue]
    if items:
        queue.clear()
        queue.extend(items)
    else:
        queue.append(None)
        queue.clear()


def _write_deque_ends(rebuilder: Rebuilder, value: ListValue, span: Span, target: str) -> list[str]:
    """The same for a deque, whose walkers may go on only if nothing was added or taken out."""
    head, tail = ([rebuilder.expr(item) for item in part] for part in (value.head, value.tail))
    made = span.stores.made if span.stores is not None else ()
    out = [f"{target}[{rebuilder.expr(place)}] = {rebuilder.expr(new)}" for place, _, (new,) in made]
    if not value.moves:
        ends = [*enumerate(head), *enumerate(tail, -len(tail))]
        return [*out, *(f"{target}[{place}] = {text}" for place, text in ends)]
    if not (head or tail or span.taken):
        return [*out, f"{rebuilder.known(stir)}({target})"]
    taken = ((span.back, "pop"), (span.front, "popleft"))
    out += [f"for _k in range({count}): {target}.{method}()" for count, method in taken if count]
    given = ((head[::-1], "extendleft"), (tail, "extend"))
    return [*out, *(f"{target}.{method}([{', '.join(texts)}])" for texts, method in given if texts)]


def _places(rebuilder: Rebuilder, place: Value, removed: int, new: list[Value]) -> str:
    """An index and an item, or a slice and items."""
    start, items = rebuilder.expr(place), [rebuilder.expr(item) for item in new]
    if removed == len(new) == 1:
        return f"{start}, {items[0]}"
    return f"slice({start}, {start} + {removed}), [{', '.join(items)}]"


def write_dict(rebuilder: Rebuilder, value: DictValue) -> list[str]:
    """Lines that give a dictionary from outside its entries."""
    target = rebuilder.expr(value)
    kind = OrderedDict if issubclass(value.cls, OrderedDict) else dict
    base, before = rebuilder.known(kind), list(kind.keys(value.real))
    if value.unread is not None:
        return [_change(rebuilder, f"{base}.", target, k, v) for k, v in value.added]
    if any(name != "__setitem__" for name, _ in value.entries.log):
        return _write_moved(rebuilder, value, f"{base}.", target)
    now = list(value.entries)[: len(before)]
    grown = now == before and [*map(type, now)] == [*map(type, before)]  # none removed or moved: what was unread stays
    pairs = [
        (rebuilder.expr(k), rebuilder.local(rebuilder.expr(v)) if type(v) is Lazy else rebuilder.expr(v))
        for k, v in value.entries.values()
        if not (grown and type(v) is Lazy)
    ]
    clear = [] if grown else [f"{base}.clear({target})"]
    return [*clear, *(f"{base}.__setitem__({target}, {k}, {v})" for k, v in pairs)]


LONGEST = 256  # changes of keys that are made again one by one


def _write_moved(rebuilder: Rebuilder, value: DictValue, base: str, target: str) -> list[str]:
    """Keys were taken out: whoever walks the dictionary sees when. What is unread has been there all the time."""
    texts = {id(k): rebuilder.expr(v) for k, v in value.entries.values() if type(v) is not Lazy}
    if len(value.entries.log) > LONGEST or any(type(n) is UserKey for n in value.entries):
        kept = [(k, rebuilder.local(rebuilder.expr(v))) for k, v in value.entries.values() if type(v) is Lazy]
        texts |= {id(k): text for k, text in kept}
        log: list = [("clear", ())]
    else:
        log = value.entries.log
    calls = [(f"{base}{name}", [rebuilder.expr(k) for k in keys], name == "__setitem__") for name, keys in log]
    made = [f"{name}({', '.join([target, *keys, *(['None'] if store else [])])})" for name, keys, store in calls]
    stores = [(rebuilder.expr(k), texts[id(k)]) for k, _ in value.entries.values() if id(k) in texts]
    return [*made, *(f"{base}__setitem__({target}, {key}, {text})" for key, text in stores)]


def _change(rebuilder: Rebuilder, base: str, target: str, key: Value, new: Any) -> str:
    if new is MISSING:
        return f"{base}__delitem__({target}, {rebuilder.expr(key)})"
    return f"{base}__setitem__({target}, {rebuilder.expr(key)}, {rebuilder.expr(new)})"


def write_set(rebuilder: Rebuilder, value: SetValue) -> list[str]:
    """Lines that give a set from outside its items."""
    target = rebuilder.expr(value)
    gone, held = ([], value.added) if value.unread is not None else value.replay()
    texts = [f"[{', '.join(rebuilder.expr(item) for item in items)}]" for items in (gone or (), held)]
    clear = f"{target}.clear()" if gone is None else f"{target}.difference_update({texts[0]})"
    return [*([] if gone == [] else [clear]), f"{target}.update({texts[1]})"]


def write_generator(rebuilder: Rebuilder, value: GeneratorValue) -> list[str]:
    """A generator from outside is where the program left it, after all other effects."""
    if value.source is not None and value.state != "running":
        rebuilder.deferred.append(rebuilder.generator_state(value, rebuilder.expr(value)))
    return []


def write_cell(rebuilder: Rebuilder, value: CellValue) -> list[str]:
    """Lines that store what a cell from outside holds."""
    if value.real is MISSING:
        return []
    target = rebuilder.outside_cell(value)
    if value.contents is None:
        return [f"del {target}.cell_contents"]
    return [f"{target}.cell_contents = {rebuilder.expr(value.contents)}"]


def write_class(rebuilder: Rebuilder, store: ClassStore) -> list[str]:
    """Lines that store the attributes of a class from outside."""
    target, out = rebuilder.known(store.real), []
    for name, item in store.table.items():
        if item is not MISSING:
            out.append(f"type.__setattr__({target}, {name!r}, {rebuilder.expr(rebuilder.s.wrap(item, None))})")
        elif name in store.real.__dict__:
            out.append(f"type.__delattr__({target}, {name!r})")
    return out


WRITERS: dict[type, Callable[[Rebuilder, Any], list[str]]] = {
    ListValue: _if_changed(write_list),
    DictValue: _if_changed(write_dict),
    SetValue: _if_changed(write_set),
    ObjectValue: write_attributes,
    CellValue: write_cell,
    GeneratorValue: write_generator,
    ClassStore: write_class,
}
