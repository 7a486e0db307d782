"""A route to each object that an entry relies on, and how another process, which has none of those, follows it to its
own."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy
import torch
import torch.fx

from dovetail.exporting.encoding import function_name
from dovetail.ir.captured import Captured
from dovetail.ir.source import (
    Arg,
    Attr,
    Bound,
    Cell,
    Computed,
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
from dovetail.kept.meshes import fields_of_spec, is_placement, names_spec, spec_of
from dovetail.kept.objects import (
    NATIVE,
    PRINTED,
    Known,
    Route,
    Unkept,
    by_name,
    followed,
    import_of_library,
    making,
    module_named,
    named,
    names_in,
    namespace_of,
    on_object,
    parts,
    trusted,
)
from dovetail.kept.objects import PLAIN as PLAIN_VALUES
from dovetail.ops.fake.wrapped import like


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
        return _WAYS[way.kind](self, way) if way.kind in _WAYS else self.roots[way.kind]

    def module(self, way: Route) -> Any:
        import_of_library(way.steps[0])
        return module_named(way.steps[0])

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


_WAYS: dict[str, Callable[[Finder, Route], Any]] = {
    "path": lambda finder, way: finder.value(way.source),  # type: ignore[arg-type]
    "like": lambda finder, way: like(finder.value(way.source), *way.steps),  # type: ignore[arg-type]
    "beside": lambda finder, way: like(finder.value(way.source)).beside[way.of],  # type: ignore[arg-type]
    "part": lambda finder, way: followed(finder.obj(way.of), way.steps),
    "value": lambda finder, way: way.steps[0],
    "spec": lambda finder, way: spec_of(finder.obj(way.of), *way.steps),
    "answer": lambda finder, way: finder.answer(way.of),
    "name": lambda finder, way: named(way.steps),
    "module": lambda finder, way: finder.module(way),
    "namespace": lambda finder, way: vars(finder.module(way)),
    "self": lambda finder, way: finder.fn.__self__,
}
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


class RouteFinder:
    """Finds a route to each of `objects` that leads there here and now, by objects that are found before it."""

    def __init__(
        self, objects: Sequence[Any], captured: Captured, finder: Finder, possible: dict[int, list[Route]],
        numbers: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.objects, self.captured, self.finder, self.possible = objects, captured, finder, possible
        self.numbers = numbers
        self.needed = [{numbers[id(obj)] for obj in objects_in(each.args)} for each in captured.asked]
        self.chosen: dict[int, Route] = {}

    def run(self) -> list[Known]:
        for k, obj in enumerate(self.objects):
            sure = next((w for w in self.possible.get(id(obj), ()) if w.kind in SURE), None) or by_name(obj)
            if sure is not None:
                self.choose(k, sure)
        left = [k for k in range(len(self.objects)) if k not in self.chosen]
        looked = False
        while left:
            for k in left:
                self.try_all(k)
            rest = [k for k in left if k not in self.chosen]
            if len(rest) == len(left):
                if looked:
                    raise Unkept(f"no way leads to {described(self.objects[rest[0]])}")
                self.look_around(rest)
                looked = True
            left = rest
        return [
            Known(self.chosen[k], making(obj), _parts_known(obj, self.numbers)) for k, obj in enumerate(self.objects)
        ]

    def choose(self, k: int, route: Route) -> None:
        """And routes from there."""
        self.chosen[k], self.finder.found[k] = route, self.objects[k]
        for steps, part in parts(self.objects[k]):
            if id(part) in self.numbers:
                self.possible.setdefault(id(part), []).append(Route("part", of=k, steps=steps))

    def try_all(self, k: int) -> None:
        obj = self.objects[k]
        for route in self.possible.get(id(obj), ()):
            if route.kind == "answer" and not self.needed[route.of] <= self.chosen.keys():
                continue
            if route.kind == "spec" and route.of not in self.chosen:
                continue
            if _leads(route, obj, self.finder, self.chosen):
                self.choose(k, route)
                return

    def look_around(self, left: list[int]) -> None:
        """For what only has a name in a module, or lies on a path of which nothing was asked."""
        wanted = {id(self.objects[k]) for k in left}
        _look_in_modules(self.objects, self.chosen, wanted, self.possible)
        sources = [g.source for g in self.captured.guards if g.source is not None]
        _look_along_paths(sources, self.finder, wanted, self.possible)
        for k in left:  # what capture has made, for the residual or of the program's annotations
            obj = self.objects[k]
            ways = self.possible.setdefault(id(obj), [])
            typing = type(obj).__module__ == "typing"
            if typing or type(obj) is tuple and not objects_in(obj) or is_placement(obj):
                ways.append(Route("value", steps=(obj,)))
            if names_spec(type(obj)) and id(obj.mesh) in self.numbers:
                ways.append(Route("spec", of=self.numbers[id(obj.mesh)], steps=fields_of_spec(obj)))


def _parts_known(obj: Any, numbers: Mapping[int, int]) -> tuple[tuple[tuple, int], ...]:
    """Where it has others, for good."""
    return tuple((steps, numbers[id(part)]) for steps, part in parts(obj) if id(part) in numbers)


def _look_in_modules(
    objects: Sequence[Any], chosen: Mapping[int, Route], wanted: set[int], possible: dict[int, list[Route]]
) -> None:
    """Ways by the names that what is wanted has in modules which are known."""
    for k in chosen:
        for name, found in names_in(objects[k]).items():
            if id(found) in wanted:
                possible.setdefault(id(found), []).append(Route("part", of=k, steps=("in", name)))


def _look_along_paths(
    sources: Sequence[Source], finder: Finder, wanted: set[int], possible: dict[int, list[Route]]
) -> None:
    """Ways that guards take, whatever they compare."""
    for source in sources:
        with contextlib.suppress(Exception):  # of the program's own
            found = finder.value(source)
            if id(found) in wanted:
                possible.setdefault(id(found), []).append(Route("path", source))


def described(obj: Any) -> str:
    if isinstance(obj, dict):
        return f"a dictionary with the keys {', '.join(map(str, list(obj)[:5]))}"
    return f"a {type(obj).__qualname__} ({getattr(obj, '__qualname__', '')})".replace(" ()", "")


SURE = ("root", "self", "function", "globals")


def _leads(way: Route, obj: Any, finder: Finder, chosen: Mapping[int, Route]) -> bool:
    if any(finder.bound[root.index] not in chosen for root in _roots(way.source)):
        return False
    try:
        return finder.follow(way) is obj or way.kind in ("like", "spec")
    except Exception:  # of the program's own
        return False


def _roots(source: Any) -> list[Bound]:
    """The bound objects that a path begins with."""
    found: list[Bound] = []
    stack = [source]
    while stack:
        each = stack.pop()
        if isinstance(each, Bound):
            found.append(each)
        stack += each.operands if isinstance(each, Computed) else ()
        stack += [part for part in (getattr(each, name, None) for name in _BASES) if isinstance(part, Source)]
    return found


_BASES = ("base", "key", "array")


def objects_in(value: Any) -> list:
    """What a value has in it that each process has of its own."""
    if type(value) in (tuple, frozenset, set):
        return [obj for part in value for obj in objects_in(part)]
    return [] if _everywhere(value) else [value]


def _everywhere(value: Any) -> bool:
    """Is it the same in every process, or does an entry have one of its own?"""
    if isinstance(value, (type, FunctionType)):
        return trusted(value.__module__) and (by_name(value) is not None or function_name(value) is not None)
    kind = type(value)
    if isinstance(value, NATIVE) and on_object(value):
        return False
    if isinstance(value, (*PLAIN_VALUES, *PRINTED, *NATIVE, enum.Enum, numpy.generic, torch._ops.OpOverload)):
        return kind in PLAIN_VALUES or trusted(kind.__module__)
    return kind.__module__.startswith("dovetail.")
