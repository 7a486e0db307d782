"""Guard → Python conditions: one row for each kind. A condition that raises counts as false."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from math import copysign, isfinite
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.guards import state, tensor
from dovetail.guards.holding import Weak
from dovetail.ir.guard import ABSENT, Guard, GuardKind
from dovetail.ir.literals import literal
from dovetail.ir.settings import SETTINGS
from dovetail.ir.source import Attr, Computed, Item, Keyed, Source


class Writer:
    """Collects the lines of one guard function and the objects that its text mentions.

    A path that several guards share is loaded into a local once: `_g3 = K[0].layers`. `miss` is what is done where a
    condition does not hold.
    """

    def __init__(self, taken: frozenset[str] = frozenset(), miss: str = "return _MISS") -> None:
        self.miss = miss
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._taken = taken
        self._by_id: dict[int, str] = {}
        self._loaded: dict[Source, str] = {}

    def constant(self, obj: Any, hint: str) -> str:
        """The global name under which the text finds `obj`."""
        name = self._by_id.get(id(obj))
        if name is None:
            hint = hint if hint.isidentifier() and not keyword.iskeyword(hint) else "value"
            name = f"_{hint}"
            while name in self.names or name in self._taken:
                name = f"_{hint}_{len(self.names)}"
            self._by_id[id(obj)] = name
            self.names[name] = obj
        return name

    def load(self, source: Source) -> str:
        """A name (or a root's text) that holds the source's value from here on."""
        found = self._loaded.get(source)
        if found is None:
            text = self.text(source)
            found = text
            if not text.isidentifier():
                found = self._local()
                self.lines.append(f"{found} = {text}")
            self._loaded[source] = found
        return found

    def named(self, source: Attr, base: str) -> tuple[str, str]:
        """A text that loads and names an attribute of what `base` holds, for use inside a condition; and the name."""
        found = self._loaded.get(source)
        if found is None:
            found = self._loaded[source] = self._local()
            return f"({found} := {base}.{source.field})", found
        return found, found

    def know(self, objects: Mapping[Source, Any]) -> None:
        """The text may name these objects, which the sources lead to."""
        for source, obj in objects.items():
            self._loaded.setdefault(source, self.constant(obj, "held"))

    def unpack(self, text: str, sources: Iterable[Source]) -> None:
        """Names for what the sources lead to, from a sequence that has it already."""
        names = []
        for source in sources:
            names.append(self._loaded.get(source) or self._local())
            self._loaded[source] = names[-1]
        self.lines.append(f"[{', '.join(names)}] = {text}")

    def _local(self) -> str:
        name = f"_g{len(self._loaded)}"
        while name in self._taken:
            name += "_"
        return name

    def text(self, source: Source) -> str:
        """The source's expression, made of what is already loaded where it has parts."""
        if isinstance(source, Computed):
            return source.template.format(*map(self.load, source.operands))
        if isinstance(source, Keyed):
            return source.loaded(self.load(source.base), self.load(source.key))
        whole = source.expr()
        base = getattr(source, "base", None)
        if base is None:
            return whole
        prefix = base.expr()
        return self.load(base) + whole[len(prefix) :] if whole.startswith(prefix) else whole

    def reused(self, lines: Iterable[str], freed: Iterable[Source] = ()) -> list[str]:
        """The residual's lines; what the guards have read already is taken from there, but for what is `freed`.

        Of what is shown once the graph has run, only items: an attribute may be something else by then.
        """
        texts = [(source, source.expr(), name) for source, name in self._loaded.items()]
        every = {text: name for source, text, name in texts if source not in freed}
        items = {text: name for source, text, name in texts if isinstance(source, Item)}
        loaded: dict[str, str] = {}  # the residual's own locals for paths to inputs, and their whole texts

        def whole(text: str) -> str:
            return LOADED.sub(lambda match: loaded.get(match[0], match[0]), text)

        found = []
        for line in lines:
            name, _, text = line.partition(" = ")
            known = items.get(text)
            if LOADED.fullmatch(name):
                loaded[name] = whole(text)
                known = every.get(loaded[name])
            elif text.startswith(_CALL):
                known = _CALL + ", ".join(every.get(whole(a), a) for a in text[len(_CALL) : -1].split(", ")) + ")"
            found.append(line if known is None else f"{name} = {known}")
        return _without_idle_loads(found)

    def forget(self, sources: Iterable[Source]) -> list[str]:
        """Lines after which no local refers to what the sources lead to."""
        return [f"{self._loaded[source]} = None" for source in sources if source in self._loaded]

    def require(self, conditions: list[str], comment: str = "") -> None:
        """Return a miss unless all hold."""
        self.lines.append(f"if not ({' and '.join(conditions)}): {self.miss}" + (f"  # {comment}" if comment else ""))

    def take(self) -> list[str]:
        """The lines so far; those that follow load every path anew."""
        lines, self.lines, self._loaded = self.lines, [], {}
        return lines


LOADED = re.compile(r"\b_l\d+\b")  # a local of the residual (capture/residual/completion.py)
_CALL = "graph("


def _without_idle_loads(lines: list[str]) -> list[str]:
    """The lines but for those that load what no later one mentions."""
    kept: list[str] = []
    mentioned: set[str] = set()
    for line in reversed(lines):
        name, _, text = line.partition(" = ")
        loads = LOADED.fullmatch(name)
        if not loads or name in mentioned:
            mentioned.update(LOADED.findall(text if loads else line))
            kept.append(line)
    return kept[::-1]


_LITERAL = (int, str, bytes)
Row = Callable[[str, Guard, Writer], list[str]]


def _id(v: str, guard: Guard, writer: Writer) -> list[str]:
    if guard.payload is None or guard.payload is True or guard.payload is False or guard.payload is ...:
        return [f"{v} is {guard.payload!r}" if guard.payload is not ... else f"{v} is ..."]
    if type(guard.payload) is Weak:
        return [f"{writer.constant(guard.payload, 'alive')}() is {v} is not None"]
    hint = getattr(guard.payload, "__name__", None) or type(guard.payload).__name__
    return [f"{v} is {writer.constant(guard.payload, hint if isinstance(hint, str) else 'object')}"]


def _equal(v: str, guard: Guard, writer: Writer) -> list[str]:
    constant = guard.payload
    if constant is None or isinstance(constant, (bool, torch.dtype)):
        return _id(v, guard, writer)
    kind = type(constant)
    if kind in _LITERAL or kind is float and isfinite(constant) and constant != 0.0:
        return [f"{v} == {literal(constant)}", f"type({v}) is {kind.__name__}"]
    if kind is torch.device:
        return [f"{v} == {writer.constant(constant, 'device')}", f"type({v}) is {writer.constant(kind, 'Device')}"]
    return [f"{writer.constant(same_value, 'same_value')}({v}, {writer.constant(constant, 'constant')})"]


def _tensor(v: str, guard: Guard, writer: Writer) -> list[str]:
    source: Any = guard.source
    named = lambda part: writer.named(Attr(source, part), v)
    return tensor.conditions(v, guard.payload, writer.constant, named, writer.load)


def _keys(v: str, guard: Guard, writer: Writer) -> list[str]:
    if not guard.payload:
        return [f"not {v}"]
    keys = tuple(guard.payload)
    if all(type(k) is str for k in keys):
        return [f"tuple({v}) == {keys!r}"]
    return [f"{writer.constant(same_value, 'same_value')}(tuple({v}), {writer.constant(keys, 'keys')})"]


def _contains(v: str, guard: Guard, writer: Writer) -> list[str]:
    key = guard.payload[0]
    return [f"{literal(key) if type(key) in _LITERAL else writer.constant(key, 'key')} {_unless(guard)}in {v}"]


def _unless(guard: Guard) -> str:
    """The second part of the payload: is it so, or is it not?"""
    return "" if guard.payload[1] else "not "


def _state(v: str, guard: Guard, writer: Writer) -> list[str]:
    name, value = guard.payload
    reader = state.PIECES.get(name) or SETTINGS.get(name)
    if reader is None:
        raise InternalError("guards", f"no such piece of state: {name!r}; known: {', '.join(state.PIECES)}")
    return [f"{writer.constant(reader, name)}() == {writer.constant(value, 'state')}"]


def _distinct(v: str, guard: Guard, writer: Writer) -> list[str]:
    others = [writer.load(s) for s in guard.payload]
    if len(others) == 1:
        return [f"{v} is not {others[0]}"]
    everything = ", ".join(f"id({o})" for o in (v, *others))
    return [f"len({{{everything}}}) == {len(others) + 1}"]


def _definition(v: str, guard: Guard, writer: Writer) -> list[str]:
    code, defaults, keywords = guard.payload
    texts = [f"{v}.__code__ is {writer.constant(code, 'code')}"]
    texts.append(f"{v}.__defaults__ is {writer.constant(defaults, 'defaults') if defaults is not None else None}")
    if keywords is None:
        return [*texts, f"{v}.__kwdefaults__ is None"]
    same = writer.constant(same_entries, "same_entries")
    return [*texts, f"{same}({v}.__kwdefaults__, {writer.constant(keywords, 'keywords')})"]


def _class_dict(v: str, guard: Guard, writer: Writer) -> list[str]:
    name, raw = guard.payload
    if raw is ABSENT:
        return [f"{name!r} not in {v}.__dict__"]
    return [f"{v}.__dict__[{name!r}] is {writer.constant(raw, 'descriptor')}"]


ROWS: dict[GuardKind, Row] = {
    GuardKind.TYPE: lambda v, guard, w: [f"type({v}) is {w.constant(guard.payload, guard.payload.__name__)}"],
    GuardKind.ID: _id,
    GuardKind.EQUAL: _equal,
    GuardKind.TENSOR: _tensor,
    GuardKind.LENGTH: lambda v, guard, w: [f"len({v}) == {guard.payload}"],
    GuardKind.KEYS: _keys,
    GuardKind.HAS_ATTR: lambda v, guard, w: [f"{_unless(guard)}hasattr({v}, {guard.payload[0]!r})"],
    GuardKind.CONTAINS: _contains,
    GuardKind.HAS_KEY: lambda v, guard, w: [f"{w.load(guard.payload[0])} {_unless(guard)}in {v}"],
    GuardKind.STATE: _state,
    GuardKind.ALIAS: lambda v, guard, w: [f"{v} is {w.load(guard.payload)}"],
    GuardKind.DISTINCT: _distinct,
    GuardKind.DEFINITION: _definition,
    GuardKind.CLASS_DICT: _class_dict,
    GuardKind.OWN_LACKS: lambda v, guard, w: [f"{guard.payload!r} not in {v}.__dict__"],
    GuardKind.SIZE: lambda v, guard, w: [w.text(guard.payload)],
}


def write(guard: Guard, writer: Writer) -> None:
    """Append the lines that check `guard`."""
    v = "" if guard.source is None else writer.load(guard.source)
    writer.require(ROWS[guard.kind](v, guard, writer), guard.user_line)


# ---------------------------------------------------------------- equality

# As guards mean it: same type, same value, and nothing that arithmetic can tell apart.


def same_value(a: Any, b: Any) -> bool:
    """Whether `a` may stand in for the constant `b`: 1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return _BY_TYPE.get(type(b), _plainly_equal)(a, b)


def same_entries(a: Any, b: Any) -> bool:
    """Whether two dictionaries have the same keys, in any order, with the very same objects."""
    return a is not None and a.keys() == b.keys() and all(a[key] is value for key, value in b.items())


def _plainly_equal(a: Any, b: Any) -> bool:
    return bool(a == b)


def _same_float(a: float, b: float) -> bool:
    return a == b and copysign(1.0, a) == copysign(1.0, b) or (a != a and b != b)


def _same_complex(a: complex, b: complex) -> bool:
    return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)


def _same_sequence(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(same_value, a, b))


def _same_set(a: Any, b: Any) -> bool:
    return len(a) == len(b) and {(type(v), repr(v)) for v in a} == {(type(v), repr(v)) for v in b} and bool(a == b)


def _same_steps(a: Any, b: Any) -> bool:
    return _same_sequence((a.start, a.stop, a.step), (b.start, b.stop, b.step))


_BY_TYPE: dict[type, Callable[[Any, Any], bool]] = {
    float: _same_float,
    complex: _same_complex,
    tuple: _same_sequence,
    list: _same_sequence,
    set: _same_set,
    frozenset: _same_set,
    range: _same_steps,
    slice: _same_steps,
}
