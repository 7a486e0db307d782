"""Iterators that suspended loops have: values → text that makes walks (`walks.py`), and walks → values."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.values.base import Const, Session, Value
from dovetail.capture.values.callables import KnownValue
from dovetail.capture.values.containers import DictValue, SequenceValue, ViewValue
from dovetail.capture.values.derived_iterators import Enumerating, Filtering, Mapping, Zipping
from dovetail.capture.values.iterators import (
    ConstIterator,
    DictIterator,
    IteratorValue,
    ReverseIterator,
    SequenceIterator,
)
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Attr, Computed, Item, Source, Standing
from dovetail.ir.walks import Walk, rounds

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder

# ---------------------------------------------------------------- text


def walk_text(rebuilder: Rebuilder, value: Value) -> str:
    """Text for what a frame has on its stack: a walk, if it is an iterator that can be one."""
    if not _is_native(value):
        return rebuilder.expr(value)
    found = rebuilder.walks.get(id(value))
    if found is None:
        if rebuilder.has_text(value) or not _can_walk(value):  # the instruction at the break may advance it
            return rebuilder.expr(value)
        rebuilder.expr(value)
        rebuilder.names["_Walk"] = Walk
        found = rebuilder.walks[id(value)] = _text(rebuilder, value)
    return found


def _can_walk(value: Value) -> bool:
    parts = _PARTS.get(type(value))
    if parts is None:
        return False
    found = parts(value)
    return found is not None and all(_can_walk(p) for p in found[1] if _is_native(p))


def _is_native(value: Any) -> bool:
    """Generators have their state beside them (`suspended_generators.py`)."""
    return isinstance(value, IteratorValue) and not isinstance(value, GeneratorValue)


def _text(rebuilder: Rebuilder, value: Any) -> str:
    kind, parts, position = _PARTS[type(value)](value)
    texts = [_text(rebuilder, p) if _is_native(p) else rebuilder.expr(p) for p in parts]
    return f"_Walk({rebuilder.expr(value)}, {kind!r}, ({''.join(f'{t}, ' for t in texts)}), {position})"


def _of_sequence(value: SequenceIterator) -> Any:
    return None if value.base is None else ("sequence", [value.base], value.index)


def _backwards(value: ReverseIterator) -> Any:
    known = isinstance(value.base, SequenceValue) and value.base.cls in (list, tuple)
    return ("reversed", [value.base], value.index) if known else None


def _of_dictionary(value: DictIterator) -> Any:
    kind = value.given.kind if isinstance(value.given, ViewValue) else "keys"
    known = value.base.cls in (dict, OrderedDict, defaultdict) and isinstance(value.given, (ViewValue, DictValue))
    plain = known and not value.back
    return ("dictionary", [value.base, Const(kind)], value.index) if plain else None


#: Kind, parts and position of a value, or None where it does not stand in its container.
_PARTS: dict[type, Callable[[Any], Any]] = {
    SequenceIterator: _of_sequence,
    ReverseIterator: _backwards,
    ConstIterator: lambda value: ("constant", [value.base], min(value.index, len(value.base.value))),
    DictIterator: _of_dictionary,
    Enumerating: lambda value: ("enumerate", [value.iterator], value.count),
    Zipping: lambda value: ("strict zip" if value.strict else "zip", value.iterators, 0),
    Mapping: lambda value: ("map", [value.function, *value.iterators], 0),
    Filtering: lambda value: ("filter", [value.function, value.iterator], 0),
}

# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class NativeOf(Source):
    """The Python object of an iterator."""

    base: Source

    def expr(self) -> str:
        base = self.base.expr()
        return f"getattr({base}, 'native', {base})"

    def name(self) -> str:
        return self.base.name()



def walked(s: Session, walk: Walk, source: Source) -> Value:
    """The iterator. Where it was seen to stand elsewhere in other calls, nothing is known of it, so that one entry
    serves all rounds of a loop, whether data or the Python object is handed on."""
    if any(map(s.table.varying.changed, rounds(walk, source))):
        return s.wrap(walk.native, NativeOf(source))
    s.guard(source, GuardKind.TYPE, Walk)
    stands = walk.stands()
    s.guard(Computed("{}.stands()", (source,)), GuardKind.ID, stands)
    found = _value(s, walk, source) if stands else None
    return s.wrap(walk.native, NativeOf(source)) if found is None else found


def _value(s: Session, walk: Walk, source: Source) -> Value | None:
    s.guard(Attr(source, "kind"), GuardKind.EQUAL, walk.kind)
    s.guard(Standing(source), GuardKind.EQUAL, walk.position)
    parts: list[Value] = []
    for k, part in enumerate(walk.parts):
        at = Item(Attr(source, "parts"), k)
        found = _value(s, part, at) if type(part) is Walk else s.wrap(part, at)
        if found is None:
            return None
        parts.append(found)
    return _MAKERS[walk.kind](s, parts, walk.position)


def _sequence(s: Session, parts: list, position: int) -> Value | None:
    made = s.iterate(parts[0])
    if not isinstance(made, SequenceIterator):
        return None
    made.index = position
    return made


def _constant(s: Session, parts: list, position: int) -> Value | None:
    made = s.iterate(parts[0])
    if not isinstance(made, ConstIterator):
        return None
    for _ in range(position):
        made.step(s)
    return made


def _reversed(s: Session, parts: list, position: int) -> Value | None:
    made = s.call(KnownValue(reversed), parts[0])
    if not isinstance(made, ReverseIterator):
        return None
    made.index = position
    return made


def _dictionary(s: Session, parts: list, position: int) -> Value | None:
    table, kind = parts
    if not isinstance(table, DictValue):
        return None
    made = s.iterate(ViewValue(table, kind.native()))
    if not isinstance(made, DictIterator):
        return None
    made.pass_over(position)
    return made


def _enumerate(s: Session, parts: list, position: int) -> Value:
    return s.call(KnownValue(enumerate), parts[0], Const(position))


def _calling(function: Any, **keywords: Any) -> Callable[[Session, list, int], Value]:
    def called(s: Session, parts: list, position: int) -> Value:
        return KnownValue(function).call(s, parts, {name: Const(value) for name, value in keywords.items()})

    return called


_MAKERS: dict[str, Callable[[Session, list, int], Value | None]] = {
    "sequence": _sequence,
    "constant": _constant,
    "reversed": _reversed,
    "dictionary": _dictionary,
    "enumerate": _enumerate,
    "zip": _calling(zip),
    "strict zip": _calling(zip, strict=True),
    "map": _calling(map),
    "filter": _calling(filter),
}
