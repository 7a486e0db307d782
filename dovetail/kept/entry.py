"""An entry's compilation as bytes, and the same put to work for the objects of another process.

    pack(captured, plan, ...)     ->  bytes
    restore(bytes, fn, ...)       ->  Kept(captured, plan): guards and names refer to this process's objects

What capture relied on by identity is found again by `objects`. What the guards compare, the new entry's own guards
compare.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
import torch.fx

from dovetail import guards
from dovetail.assembly import Plan
from dovetail.errors import InvalidArgument
from dovetail.exporting.encoding import Decoder, Encoder, function_name
from dovetail.ir.captured import AGAIN, ENTERED, PLAIN, UNDONE, Captured
from dovetail.ir.guard import ABSENT, Guard, GuardKind
from dovetail.ir.source import Bound, Computed, Source
from dovetail.kept.holds import failing
from dovetail.kept.objects import HOLDERS, Finder, Known, Unkept, Way, by_name, making, names_in, parts, ways
from dovetail.kept.packing import OPERATORS, pack, unpack
from dovetail.runtime.undisturbed import changes_modes

#: In a residual's names: what each process makes for itself, and what it finds with the function.
OWN = (AGAIN, ENTERED, PLAIN, UNDONE)
FOUND = ("F", "G", "P")
BY_OBJECT = (GuardKind.ID, GuardKind.TYPE)


class Mismatch(Exception):
    """The compilation does not belong to this call: what it relied on is not there, or not the same."""


@dataclass(frozen=True)
class Ref:
    """In the place of an object: its number among those that the entry relies on."""

    number: int


@dataclass(frozen=True)
class Made:
    """In the place of what a guard compares by identity: how it is made."""

    made: Any


@dataclass(frozen=True)
class Kept:
    """`steady`: the graph leaves modes and settings as they are."""

    captured: Captured
    plan: Plan
    steady: bool


class LaterGraph:
    """A captured graph that is read when something asks for it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.meta: dict[str, Any] = {}

    @cached_property
    def module(self) -> torch.fx.GraphModule:
        return Decoder("a kept compilation").module(json.loads(self.data))

    @property
    def graph(self) -> torch.fx.Graph:
        return self.module.graph

    def forward(self, *inputs: Any) -> Any:
        return self.module.forward(*inputs)


#: Of `Captured`, what is taken as it is.
PARTS = tuple(f.name for f in fields(Captured) if f.name not in ("graph", "guards", "names", "bound", "continuations"))


def pack_entry(
    captured: Captured, plan: Plan, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Any
) -> bytes:
    """`state`: the modes it was captured under. Raises Unkept for a compilation that only this process can use."""
    if captured.continuations:
        raise Unkept("it ends in a graph break")
    if captured.passing:
        raise Unkept("it is made for one call")
    function = guards.root_function(fn)
    if captured.names["F"] is not function or captured.names["G"] is not getattr(function, "__globals__", None):
        raise Unkept("it is not compiled as a function of a module")
    objects = [*captured.bound, *(g.payload for g in captured.guards if g.kind in BY_OBJECT)]
    distinct = list({id(obj): obj for obj in objects}.values())
    numbers = {id(obj): k for k, obj in enumerate(distinct)}
    known = _known(distinct, captured, fn, function, args, kwargs, numbers)
    return pack({
        "guards": [_without_objects(guard, numbers) for guard in captured.guards],
        "bound": [numbers[id(obj)] for obj in captured.bound],
        "known": known,
        "names": {name: v for name, v in captured.names.items() if name not in (*OWN, *FOUND)},
        "own": [name for name in captured.names if name in OWN],
        "parts": {name: getattr(captured, name) for name in PARTS},
        "graph": _graph(captured.graph),
        "steady": not changes_modes(captured.graph.graph),
        "plan": plan,
        "state": state,
    })  # fmt: skip


def restore(
    data: bytes, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], own: Mapping[str, Any], state: Any
) -> Kept:
    """`own` are the names that each process makes for itself. Raises Mismatch."""
    try:
        found = unpack(data)
        if found["state"] != state:
            raise Mismatch("modes are others")
        captured = Captured(LaterGraph(found["graph"]), guards=(), names=found["names"], **found["parts"])  # type: ignore[arg-type]
        function = guards.root_function(fn)
        finder = Finder(fn, function, _parameters(captured, fn, args, kwargs), found["bound"])
        finder.known = found["known"]
        bound = tuple(_found(finder, number) for number in found["bound"])
        static = tuple(bound[i.source.index] for i in captured.inputs if i.static)  # type: ignore[attr-defined]
        mine = tuple(_with_objects(guard, finder) for guard in found["guards"])
    except Mismatch:
        raise
    except Exception as error:  # of a path that leads nowhere, of the program's own properties, of damaged bytes
        raise Mismatch(f"{type(error).__name__}: {error}") from error
    _keep_apart(finder)
    names = {**found["names"], **{name: own[name] for name in found["own"]}}
    names |= {"F": function, "G": finder.globals, "P": static}
    captured = replace(captured, guards=mine, names=names, bound=bound)
    failed = failing(captured, fn, finder, args, kwargs)
    if failed:
        raise Mismatch(str(failed[0]))
    return Kept(captured, found["plan"], found["steady"])


def _parameters(captured: Captured, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return guards.parameters(captured, fn, args, kwargs)


# ---------------------------------------------------------------- what it relies on


def _known(
    objects: Sequence[Any], captured: Captured, fn: Any, function: Any, args: tuple[Any, ...],
    kwargs: Mapping[str, Any], numbers: Mapping[int, int],
) -> list[Known]:  # fmt: skip
    """A way to each that leads there here and now, by objects that are found before it."""
    possible = ways(captured.guards, fn, function)
    bound = [numbers[id(obj)] for obj in captured.bound]
    finder = Finder(fn, function, _parameters(captured, fn, args, kwargs), bound)
    chosen: dict[int, Way] = {}

    def choose(k: int, way: Way) -> None:
        """And ways from there."""
        chosen[k], finder.found[k] = way, objects[k]
        for steps, part in parts(objects[k]):
            if id(part) in numbers:
                possible.setdefault(id(part), []).append(Way("part", of=k, steps=steps))

    for k, obj in enumerate(objects):
        sure = next((w for w in possible.get(id(obj), ()) if w.kind in SURE), None) or by_name(obj)
        if sure is not None:
            choose(k, sure)
    left = [k for k in range(len(objects)) if k not in chosen]
    looked = False  # for what only has a name in a module
    while left:
        for k in left:
            way = next((w for w in possible.get(id(objects[k]), ()) if _leads(w, objects[k], finder, chosen)), None)
            if way is not None:
                choose(k, way)
        rest = [k for k in left if k not in chosen]
        if len(rest) == len(left):
            if looked:
                raise Unkept(f"no way leads to {_described(objects[rest[0]])}")
            _look_in_modules(objects, chosen, {id(objects[k]) for k in rest}, possible)
            looked = True
        left = rest
    return [Known(chosen[k], making(obj)) for k, obj in enumerate(objects)]


def _look_in_modules(
    objects: Sequence[Any], chosen: Mapping[int, Way], wanted: set[int], possible: dict[int, list[Way]]
) -> None:
    """Ways by the names that what is wanted has in modules which are known."""
    for k in chosen:
        for name, found in names_in(objects[k]).items():
            if id(found) in wanted:
                possible.setdefault(id(found), []).append(Way("part", of=k, steps=("in", name)))


def _described(obj: Any) -> str:
    if isinstance(obj, dict):
        return f"a dictionary with the keys {', '.join(map(str, list(obj)[:5]))}"
    return f"a {type(obj).__qualname__} ({getattr(obj, '__qualname__', '')})".replace(" ()", "")


SURE = ("root", "self", "function")


def _leads(way: Way, obj: Any, finder: Finder, chosen: Mapping[int, Way]) -> bool:
    if any(finder.bound[root.index] not in chosen for root in _roots(way.source)):
        return False
    try:
        return finder.follow(way) is obj
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


def _found(finder: Finder, number: int) -> Any:
    """The object, if it is of the same making as the one that the entry was made for."""
    obj, known = finder.obj(number), finder.known[number]
    try:
        same = number in finder.checked or making(obj) == known.made
    except Unkept:
        same = False
    if not same:
        raise Mismatch(f"{_described(obj)} is not what it was")
    finder.checked.add(number)
    return obj


def _keep_apart(finder: Finder) -> None:
    """Objects that were different are different, where that can be told."""
    held = [obj for obj in finder.found.values() if isinstance(obj, HOLDERS)]
    if len({id(obj) for obj in held}) < len(held):
        raise Mismatch("objects that were different are one")


def _without_objects(guard: Guard, numbers: Mapping[int, int]) -> Guard:
    if guard.kind in BY_OBJECT:
        return replace(guard, payload=Ref(numbers[id(guard.payload)]))
    if guard.kind is GuardKind.DEFINITION:
        code, defaults, keywords = guard.payload
        return replace(guard, payload=Made(tuple(map(_loosely_made, (code, defaults, keywords)))))
    if guard.kind is GuardKind.CLASS_DICT:
        name, member = guard.payload
        return guard if member is ABSENT else replace(guard, payload=(name, Made(making(member))))
    return guard


def _loosely_made(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _loosely_made(v) for key, v in part.items()}
    if type(part) is tuple:
        return tuple(map(_loosely_made, part))
    return making(part)


def _with_objects(guard: Guard, finder: Finder) -> Guard:
    payload, source = guard.payload, guard.source
    if isinstance(payload, Ref):
        return replace(guard, payload=_found(finder, payload.number))
    if guard.kind is GuardKind.DEFINITION:
        function = finder.value(source)  # type: ignore[arg-type]
        now = function.__code__, function.__defaults__, function.__kwdefaults__
        if tuple(map(_loosely_made, now)) != payload.made:
            raise Mismatch(f"{function.__qualname__} has changed")
        return replace(guard, payload=now if now[2] is None else (*now[:2], dict(now[2])))
    if guard.kind is GuardKind.CLASS_DICT and isinstance(payload[1], Made):
        cls, (name, made) = finder.value(source), payload  # type: ignore[arg-type]
        member = cls.__dict__.get(name, ABSENT)
        if member is ABSENT or making(member) != made.made:
            raise Mismatch(f"{cls.__qualname__}.{name} has changed")
        return replace(guard, payload=(name, member))
    return guard


# ---------------------------------------------------------------- the captured graph


def _graph(graph: torch.fx.GraphModule) -> bytes:
    """For when PyTorch must run it."""
    inner = dict(graph.named_children())
    for node in graph.graph.nodes:
        known = node.op != "call_function" or function_name(node.target) is not None
        if not known or node.op == "call_module" or node.op == "get_attr" and node.target not in inner:
            raise Unkept(f"its graph has {node.target}, which is the program's own")
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in OPERATORS:
            raise Unkept(f"the operator {node.target} is the program's own")
    try:
        return json.dumps(Encoder().module(graph)).encode()
    except InvalidArgument as error:
        raise Unkept(str(error)) from error
