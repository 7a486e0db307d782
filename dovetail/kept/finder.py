"""The program's objects by the paths of their sources, in a process that has none of an earlier one's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.ir.source import (
    Arg,
    Attr,
    Bound,
    Cell,
    Global,
    Globals,
    Item,
    Keyed,
    Member,
    OwnDict,
    RawAttr,
    Source,
    TypeOf,
)
from dovetail.kept.objects import Known, Route, followed, module_named, named, namespace_of


class Finder:
    """Follows ways in this process. `parameters` are the callable's, by name; `known` what K holds."""

    def __init__(self, fn: Any, function: Any, parameters: Mapping[str, Any], bound: Sequence[int]) -> None:
        self.fn, self.function, self.parameters, self.bound = fn, function, parameters, bound
        self.globals = namespace_of(fn, function)
        self.roots = {"root": fn, "function": function, "globals": self.globals}
        self.known: Sequence[Known] = ()
        self.asked: Sequence[Callable[[], Any]] = ()  # questions
        self.answers: dict[int, Any] = {}
        self.found: dict[int, Any] = {}
        self.values: dict[int, tuple[Source, Any]] = {}  # by identity: paths share their beginnings
        self.checked: set[int] = set()  # of the same making

    def answer(self, number: int) -> Any:
        """What the process says to question number `number`, which is asked once."""
        if number not in self.answers:
            self.answers[number] = self.asked[number]()
        return self.answers[number]

    def obj(self, number: int) -> Any:
        """The object number `number` of those that the entry relies on."""
        if number not in self.found:
            self.found[number] = self.follow(self.known[number].way)
        return self.found[number]

    def follow(self, way: Route) -> Any:
        if way.source is not None:
            return self.value(way.source)
        if way.kind == "part":
            return followed(self.obj(way.of), way.steps)
        if way.kind == "value":
            return way.steps[0]
        if way.kind == "answer":
            return self.answer(way.of)
        if way.kind == "name":
            return named(way.steps)
        if way.kind in ("module", "namespace"):
            module = module_named(way.steps[0])
            return module if way.kind == "module" else vars(module)
        return self.fn.__self__ if way.kind == "self" else self.roots[way.kind]

    def value(self, source: Source) -> Any:
        """What the source leads to. Raises whatever reading it raises."""
        known = self.values.get(id(source))
        if known is not None:
            return known[1]
        step = _STEPS.get(type(source))
        found = step(self, source) if step is not None else self.evaluated(source)
        self.values[id(source)] = source, found
        return found

    def evaluated(self, source: Source) -> Any:
        names = {"G": self.globals, "F": self.function, "K": _Bound(self), "M": sys.modules, **self.parameters}
        return eval(source.expr(), names)


class _Bound:
    def __init__(self, finder: Finder) -> None:
        self.finder = finder

    def __getitem__(self, index: int) -> Any:
        return self.finder.obj(self.finder.bound[index])


_STEPS: dict[type, Callable[[Finder, Any], Any]] = {
    Arg: lambda finder, source: finder.parameters[source.param],
    Global: lambda finder, s: (sys.modules[s.module].__dict__ if s.module else finder.globals)[s.key],
    Globals: lambda finder, s: sys.modules[s.module].__dict__ if s.module else finder.globals,
    Cell: lambda finder, source: finder.function.__closure__[source.index].cell_contents,
    Bound: lambda finder, source: finder.obj(finder.bound[source.index]),
    Attr: lambda finder, source: getattr(finder.value(source.base), source.field),
    Item: lambda finder, source: finder.value(source.base)[source.key],
    Keyed: lambda finder, source: finder.value(source.base).get(finder.value(source.key)),
    TypeOf: lambda finder, source: type(finder.value(source.base)),
    Member: lambda finder, source: getattr(finder.value(source.base), source.table)[source.field],
    RawAttr: lambda finder, source: object.__getattribute__(finder.value(source.base), "__dict__")[source.field],
    OwnDict: lambda finder, source: object.__getattribute__(finder.value(source.base), "__dict__"),
}
