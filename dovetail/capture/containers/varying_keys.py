"""Items of containers from outside under an index or key that differs from call to call.

Such an item is reached by a path that the residual computes, and guarded by what it is. A store is written down with
its key and replayed under it. Whether two keys are one is seen while capturing, and the entry relies on that; so is
whether the container has the item. What needs to know the whole container asks for the keys' values.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.containers.from_outside import KEYED
from dovetail.capture.containers.hashing import member
from dovetail.capture.containers.splices import Splices, real
from dovetail.capture.numbers import dispatch, input_numbers
from dovetail.capture.values.base import MISSING, Const, Session, Value, is_singleton
from dovetail.capture.values.containers import DictValue, SequenceValue, SliceValue, TupleValue, literal, varying_tuple
from dovetail.capture.values.objects import Lazy, ModuleValue, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.unread_span import Span
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import LENGTH, Computed, ComputedAttr, ComputedItem, Source

# ---------------------------------------------------------------- sequences


def position(s: Session, value: SequenceValue, index: Value, words: str) -> Value | None:
    """Where the item of that index is in what the call began with and the splices made of it.

    None where only the index's value says it. `words`: what the program's IndexError says.
    """
    place = _place(s, value, index)
    if place is not None or not _open(value, index):
        return place
    span: Any = value.span
    more = len(value.head) + len(value.tail) - span.taken + span.grown
    length = len(span.real) + more
    if -length <= index.real < length:  # type: ignore[attr-defined]
        return None
    bound = f"len({{}}) + {more}"
    input_numbers.outcome(s, f"(-({bound}) <= {{}} < {bound})", [span, index, span], False)
    return s.throw(IndexError, words)


def _open(value: SequenceValue, index: Value) -> bool:
    return value.divisible and input_numbers.varies(index) and index.cls is int


def _place(s: Session, value: SequenceValue, index: Any, behind_all: bool = False) -> Value | None:
    """The same for an index in the unread part, or right behind it; None for any other."""
    if not _open(value, index):
        return None
    span: Any = value.span
    size, real, head, tail = len(span.real), index.real, len(value.head), len(value.tail)
    first, behind = head - span.front, tail - span.back + span.grown
    end = first - span.back + span.grown + behind_all
    if head <= real < size + end:
        input_numbers.outcome(s, f"({head} <= {{}} < len({{}}) + {end})", [index, span], True)
        return index if not first else input_numbers.computed(s, f"({{}} - {first})", [index], real - first)
    if span.front - size - behind <= real < -tail:
        input_numbers.outcome(s, f"({span.front - behind} - len({{}}) <= {{}} < {-tail})", [span, index], True)
        return input_numbers.computed(s, f"({{}} + len({{}}) + {behind})", [index, span], real + size + behind)
    return None


def item(s: Session, value: SequenceValue, index: Value) -> Value | None:
    """`value[index]`; None where only the index's value will do."""
    last = _in_tail(s, value, index)
    if last is not None:
        found = value.tail[last]
        if type(found) is Lazy:
            found = value.tail[last] = s.wrap(found.real, found.source)
        return found
    place: Any = position(s, value, index, f"{value.cls.__name__} index out of range")
    if place is None:
        return None
    return _at(s, value, place)


def _at(s: Session, value: SequenceValue, place: Any) -> Value:
    span: Any = value.span
    stored, place = span.stores.at(place) if span.stores is not None else (None, place)
    if stored is not None:
        return stored
    path = ComputedItem(span.source, place.source) if input_numbers.varies(place) else span.source.item(real(place))
    return s.wrap(span.real[real(place)], path)


def _in_tail(s: Session, value: SequenceValue, index: Value) -> int | None:
    """Where in the tail the item of an index is, which follows from the index and the length."""
    if not value.divisible or not value.tail or not input_numbers.varies(index) or index.cls is not int:
        return None
    span: Any = value.span
    size, real = len(span.real), index.real  # type: ignore[attr-defined]
    place = real - (size + len(value.head) - span.taken + span.grown)
    if not 0 <= place < len(value.tail):
        return None
    input_numbers.outcome(s, f"({{}} - len({{}}) == {real - size})", [index, span], True)
    return int(place)


def items(s: Session, value: SequenceValue, index: SliceValue) -> list | None:
    """What is in `value[index]`; None where only the numbers will do. The entry relies on how many there are."""
    chosen = _chosen(s, value, index)
    if chosen is None or value.span.stores is not None:  # type: ignore[union-attr]
        return None
    found, text, parts = chosen
    input_numbers.outcome(s, f"(len({text}) == {len(found)})", parts, True)
    places = [input_numbers.computed(s, f"({text}.start + {k})", parts, at) for k, at in enumerate(found)]
    if None in places:
        return None
    span: Any = value.span
    return [Lazy(span.real[at], ComputedItem(span.source, place.source)) for at, place in zip(found, places)]  # type: ignore[union-attr, arg-type]


def _chosen(s: Session, value: SequenceValue, index: SliceValue) -> tuple[range, str, list] | None:
    """Which places a slice of a list is about, as they are in this call and as text with operands."""
    span: Any = value.span if value.divisible and value.real is not MISSING else None
    bounds: list = [index.start, index.stop]
    if span is None or span.taken or value.head or value.tail:
        return None
    numbers = all(isinstance(b, Const) and b.cls in (int, type(None)) for b in bounds)
    if not numbers or not any(map(_varies, bounds)) or not is_singleton(index.step, None):
        return None
    found = range(len(span.real) + span.grown)[slice(*map(_real, bounds))]
    return found, f"range(len({{}}) + {span.grown})[{{}}:{{}}]", [span, *bounds]


def part(s: Session, value: SequenceValue, index: SliceValue) -> Span | None:
    """`value[index]` as a whole where its size differs from call to call; None where the items must be known."""
    chosen = _chosen(s, value, index)
    span: Any = value.span
    if chosen is None or span.stores is not None or _varies(index.start) is _varies(index.stop):
        return None
    places, _, parts = chosen
    source = input_numbers.source_of(s, "{}[{}:{}]", parts)
    return Span(s, span.real[places.start : places.stop], source, span.read, True)


def store(s: Session, value: SequenceValue, index: Value, new: Value) -> bool:
    """`value[index] = new`; False where only the index's value will do."""
    last = _in_tail(s, value, index)
    if last is not None:
        value.tail[last] = new
        return True
    words = ASSIGNMENT if _is_list(value) else "deque index out of range"
    place = position(s, value, index, words) if value.real is not MISSING else None
    if place is not None:
        _splice(s, value, place, 1, [new])
    return place is not None


ASSIGNMENT = "list assignment index out of range"


def _is_list(value: SequenceValue) -> bool:
    """Is it a list from outside? What is inserted in the middle of others, or deleted there, is not written down."""
    return value.real is not MISSING and value.cls is list


def _splice(s: Session, value: SequenceValue, place: Value, removed: int, new: list[Value]) -> None:
    span: Any = value.span
    if span.stores is None:
        span.stores = Splices(s, span, _one)
    span.stores.splice(place, removed, new)


def assign(s: Session, value: SequenceValue, index: Value, new: Any) -> bool:
    """`value[index] = new`, or `del value[index]` of None; False where only the numbers will do."""
    if isinstance(index, SliceValue):
        return replace(s, value, index, [] if new is None else new.items)
    return store(s, value, index, new) if new is not None else remove(s, value, index, ASSIGNMENT) is not None


def insert(s: Session, value: SequenceValue, index: Value, new: Value) -> bool:
    """`value.insert(index, new)`; False where only the index's value will do."""
    place = _place(s, value, index, True) if _is_list(value) else None
    if place is not None:
        _splice(s, value, place, 0, [new])
    return place is not None


def remove(s: Session, value: SequenceValue, index: Value, words: str) -> Value | None:
    """`value.pop(index)`; None where only the index's value will do."""
    place = position(s, value, index, words) if _is_list(value) else None
    if place is None:
        return None
    found = _at(s, value, place)
    _splice(s, value, place, 1, [])
    return found


def replace(s: Session, value: SequenceValue, index: SliceValue, new: list[Value]) -> bool:
    """`value[index] = new`; False where only the numbers will do. The entry relies on how many items go."""
    chosen = _chosen(s, value, index) if value.real is not MISSING else None
    if chosen is None:
        return False
    count, text, parts = chosen
    input_numbers.outcome(s, f"(len({text}) == {len(count)})", parts, True)
    place = input_numbers.computed(s, f"{text}.start", parts, count.start)
    if place is not None:
        _splice(s, value, place, len(count), new)
    return place is not None


# ---------------------------------------------------------------- dictionaries and sets


def holds(s: Session, container: DictValue | SetValue, key: Value) -> bool:
    """`key in container`, whatever its class says."""
    if isinstance(container, DictValue) and single(container, key):
        return has(s, container, key)
    known = in_set(s, container, key)
    if known is None and input_numbers.varies(key):
        known = input_numbers.contains(s, container.entries, key)
    if known is not None:
        return known
    return container.has(member(s, key) if isinstance(container, SetValue) else s.hashable(key))


def entry(s: Session, container: DictValue, key: Value) -> Value | None:
    """The value under the key; None if there is none."""
    return get(s, container, key) if single(container, key) else container.get(s, s.hashable(key))


def remove_entry(s: Session, container: DictValue, key: Value) -> None:
    """`del container[key]`, which is there."""
    if single(container, key) and container.unread is not None:
        container.added.append((key, MISSING))
    else:
        del container.entries[s.hashable(key)]
    container.mark(s)


def single(value: Any, key: Value) -> bool:
    """Is the entry under `key` found by a path that is computed, without a look at the others?"""
    if not isinstance(value, DictValue) or value.source is None or type(value.real) not in KEYED:
        return False
    if value.by_tensors or value.unread is None and value.changed:
        return False
    return _varies(key) or value.unread is not None and literal(key) and any(_varies(k) for k, _ in value.added)


def has(s: Session, value: DictValue, key: Value) -> bool:
    """`key in value`"""
    known = _added(s, value, key)
    return _present(s, value, key) if known is None else known is not MISSING


def get(s: Session, value: DictValue, key: Any) -> Value | None:
    """The value under the key; None if there is none."""
    known = _added(s, value, key)
    if known is not None:
        return None if known is MISSING else known
    if not _present(s, value, key):
        return None
    source = ComputedItem(value.source, _source(s, key), True)  # type: ignore[arg-type]
    return s.wrap(dict.__getitem__(value.real, _real(key)), source)


def in_set(s: Session, value: Any, key: Value) -> bool | None:
    """`key in value` for a set that nothing relies on; None where its items must be known."""
    if not isinstance(value, SetValue) or type(value.real) is not set or value.unread is None or not literal(key):
        return None
    if not _varies(key) and not any(map(_varies, value.added)):
        return None
    return any(_one(s, key, other) for other in value.added) or _present(s, value, key)


def count(s: Session, value: Any) -> Value | None:
    """`len(value)` without a look at what the dictionary or set holds; None where that must be known."""
    if value.unread is None or value.source is None or type(value.real) not in (*KEYED, set):
        return None
    if len(value.added) > FEW or getattr(value, "by_tensors", False):
        return None
    changes = [change if isinstance(value, DictValue) else (change, None) for change in value.added]
    more, known = 0, list[Any]()
    for key, new in reversed(changes):
        if not any(_one(s, key, other) for other in known):
            known.append(key)
            more += (new is not MISSING) - _present(s, value, key)
    before: Any = s.wrap(len(value.real), Computed(LENGTH, (value.source,)))
    return (dispatch.binary(s, "add", before, Const(more)) or Const(before.value + more)) if more else before


FEW = 8  # changes that are compared with one another


def _present(s: Session, value: Any, key: Value) -> bool:
    found = _real(key) in value.real
    if _varies(key):
        input_numbers.outcome(s, "({} in {})", [_source(s, key), value], found)
    else:
        s.guard(value.source, GuardKind.CONTAINS, (_real(key), found))
    return found


def _added(s: Session, value: DictValue, key: Value) -> Any:
    """What the program has put under the key, MISSING where it has removed it, None where it did neither."""
    changes = value.added if value.unread is not None else ()
    return next((new for other, new in reversed(changes) if _one(s, other, key)), None)


# ---------------------------------------------------------------- attributes


def attribute(s: Session, value: Value, name: Value) -> Value | None:
    """`getattr(value, name)` of what the instance or a module's table has; None where the name must be known."""
    if not input_numbers.varies(name) or name.cls is not str or not _plain(s, value):
        return None
    known, found = _real(name), getattr(value.real, _real(name), MISSING)  # type: ignore[attr-defined]
    if found is MISSING or s.static(value.cls, known) is not MISSING or known in value.attrs:  # type: ignore[attr-defined]
        return None
    input_numbers.outcome(s, "hasattr(type({}), {})", [value, name], False)
    return s.wrap(found, ComputedAttr(value.source, name.source))  # type: ignore[arg-type]


def _plain(s: Session, value: Any) -> bool:
    """An object from outside, as it was, whose class does nothing about attributes."""
    if type(value) not in (ObjectValue, ModuleValue) or value.source is None or value.real is MISSING or value.written:
        return False
    if any(getattr(value.attrs.get(table), "changed", False) for table in MODULE_TABLES):
        return False
    getters = (MISSING, torch.nn.Module.__getattr__) if type(value) is ModuleValue else (MISSING,)
    plain = s.static(value.cls, "__getattribute__") is object.__getattribute__
    return plain and s.static(value.cls, "__getattr__") in getters


MODULE_TABLES = ("_parameters", "_buffers", "_modules")

# ---------------------------------------------------------------- keys


def _varies(key: Value) -> bool:
    return input_numbers.varies(key) and key.cls in (int, str) or varying_tuple(key)


def _real(key: Any) -> Any:
    if isinstance(key, TupleValue):
        return tuple(map(_real, key.head))
    return real(key)


def _source(s: Session, key: Any) -> Source:
    """What gives the key: a path, or its text."""
    if isinstance(key, TupleValue):
        return input_numbers.source_of(s, f"({'{}, ' * len(key.head)})", key.head)
    return key.source if _varies(key) else input_numbers.source_of(s, "{}", [key])


def _one(s: Session, left: Any, right: Any) -> bool:
    """Are the keys equal? The entry relies on it where one of them varies."""
    if left is right:
        return True
    if isinstance(left, TupleValue) or isinstance(right, TupleValue):
        both = type(left) is type(right) and len(left.head) == len(right.head)
        return both and all(_one(s, a, b) for a, b in zip(left.head, right.head))
    if _varies(left) or _varies(right):
        made = dispatch.compare(s, "==", left, right)
        if made is not None:
            return bool(made.native())
    return bool(left.value == right.value)
