"""An entry's compilation as bytes, and the same put to work for the objects of another process.

    pack(captured, plan, ...)     ->  bytes
    restore(read(bytes), fn, ...) ->  Kept(captured, plan): guards and names refer to this process's objects

What capture relied on by identity is found again by `objects`. What the guards compare, the new entry's own guards
compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.fx

from dovetail import guards
from dovetail.assembly import Plan, trains
from dovetail.errors import Location
from dovetail.ir.asked import Asked, files_of
from dovetail.ir.captured import AGAIN, ENTERED, PLAIN, UNDONE, Captured, Continuation
from dovetail.ir.guard import ABSENT, Guard, GuardKind
from dovetail.ir.lazy_module import python_of
from dovetail.ir.records import dataclass
from dovetail.kept import operators
from dovetail.kept.graphs import pack_graph, unpack_graph
from dovetail.kept.holds import failing
from dovetail.kept.meshes import group_named, is_mesh, ways_of_operators
from dovetail.kept.objects import (
    HOLDERS,
    Unkept,
    code_digest,
    continuation_of,
    followed,
    making,
    namespace_of,
    routes,
    trusted,
)
from dovetail.kept.packing import pack, unpack
from dovetail.kept.routes import Finder, RouteFinder, described, objects_in
from dovetail.ops.fake.wrapped import Like

#: In a residual's names: what each process makes for itself, and what it finds with the function.
OWN = (AGAIN, ENTERED, PLAIN, UNDONE)
FOUND = ("F", "G", "P")
DEFAULT = "_default_"  # with the name of a parameter
BY_OBJECT = (GuardKind.ID, GuardKind.TYPE)


class Mismatch(Exception):
    """The compilation does not belong to this call: what it relied on is not there, or not the same."""


@dataclass(frozen=True)
class ObjectRef:
    """In the place of an object: its number among those that the entry relies on."""

    number: int


@dataclass(frozen=True)
class Made:
    """In the place of what a guard compares by identity: how it is made."""

    made: Any


@dataclass(frozen=True)
class Kept:
    captured: Captured
    plan: Plan


class LaterGraph:
    """A captured graph that is read when something asks for it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.objects: Sequence[Any] = ()  # of the program, that it has in it
        self.meta: dict[str, Any] = {}

    @cached_property
    def module(self) -> torch.fx.GraphModule:
        return unpack_graph(self.data, self.objects)

    @property
    def graph(self) -> torch.fx.Graph:
        return self.module.graph

    def real_recompile(self) -> None:
        python_of(self.module)

    def forward(self, *inputs: Any) -> Any:
        return self.module.forward(*inputs)


#: Of `Captured`, what is taken as it is.
APART = ("graph", "guards", "names", "bound", "continuations", "asked", "alone")
PARTS = tuple(f.name for f in fields(Captured) if f.name not in APART)


def pack_entry(captured: Captured, plan: Plan, fn: Any, args: tuple, kwargs: Mapping[str, Any], state: Any) -> bytes:
    """`state`: the modes it was captured under. Raises Unkept for a compilation that only this process can use."""
    if captured.one_shot:
        raise Unkept("it is made for one call")
    if captured.alone:
        raise Unkept(captured.alone)
    function = guards.root_function(fn)
    if captured.names["F"] is not function or captured.names["G"] is not namespace_of(fn, function):
        raise Unkept("it is not compiled as a function of a module")
    apart = {*OWN, *FOUND, *captured.continuations}
    names = {name: v for name, v in captured.names.items() if name not in apart and DEFAULT not in name}
    calls = [] if trains(plan) else operators.calls(captured.graph)
    own = [operator for call in calls for operator in (call.operator, *operators.overloads(call.operator))]
    graph, inside = pack_graph(captured.graph, own)
    meshes = _meshes(captured, inside)
    distinct = _objects_of(captured, function, (*inside, *meshes), names)
    numbers = {id(obj): k for k, obj in enumerate(distinct)}
    finder = Finder(fn, function, _parameters(captured, fn, args, kwargs), [numbers[id(obj)] for obj in captured.bound])
    finder.asked = [partial(getattr, each, "answer") for each in captured.asked]
    possible = routes(captured, fn, function)
    known = RouteFinder(distinct, captured, finder, possible, numbers).run()
    asked = [*captured.asked, *_of_files(captured, distinct), *_of_groups(captured, meshes)]
    return pack({
        "guards": [_without_objects(guard, numbers) for guard in captured.guards],
        "bound": [numbers[id(obj)] for obj in captured.bound],
        "known": known,
        "asked": [_question(each, numbers) for each in asked],
        "names": {name: _referred(v, numbers) for name, v in names.items()},
        "rests": {name: _rest(rest, numbers) for name, rest in captured.continuations.items()},
        "own": [name for name in captured.names if name in OWN],
        "parts": {name: getattr(captured, name) for name in PARTS},
        "graph": graph,
        "inside": _referred(tuple(inside), numbers),
        "meshes": _referred(meshes, numbers),
        "plan": plan,
        "state": state,
        "calls": calls,
    }, own, meshes)  # fmt: skip


def _meshes(captured: Captured, inside: Sequence[Any]) -> tuple:
    """Those that tensors lie on, each once."""
    beside = [each for known in captured.bound if isinstance(known, Like) for each in known.beside]
    return tuple({id(each): each for each in (*inside, *beside) if is_mesh(each)}.values())


def _objects_of(captured: Captured, function: Any, inside: Sequence[Any], names: Mapping[str, Any]) -> list:
    """What an entry relies on that each process has of its own, each once. `inside`: what the graph refers to."""
    objects = [*captured.bound, *(g.payload for g in captured.guards if g.kind in BY_OBJECT), function]
    objects += [g.payload for g in captured.guards if g.kind is GuardKind.EQUAL and objects_in(g.payload)]
    objects += [obj for obj in inside if objects_in(obj)]
    objects += [scope for rest in captured.continuations.values() for scope in rest.scopes]
    for value in (*names.values(), *(arg for each in captured.asked for arg in each.args)):
        objects += objects_in(value)
    return list({id(obj): obj for obj in objects}.values())


def read(data: bytes) -> dict[str, Any]:
    """What `pack_entry` has written. Raises Mismatch."""
    try:
        found: dict[str, Any] = unpack(data)
        return found | {"data": data} if found["meshes"] else found
    except Exception as error:  # whatever damaged bytes lead to
        raise _mismatch(error) from error


def _mismatch(error: Exception) -> Mismatch:
    return Mismatch(f"{type(error).__name__}: {error}")


def restore(
    found: Mapping[str, Any], fn: Any, args: tuple, kwargs: Mapping[str, Any], own: Mapping[str, Any],
    state: Any,
) -> Kept:  # fmt: skip
    """`found` was read; `own` are the names that each process makes for itself. Raises Mismatch."""
    try:
        if found["state"] != state:
            raise Mismatch("modes are others")
        other = operators.changed(found["calls"])
        if other is not None:
            raise Mismatch(f"what {other} gives looks otherwise")
        function = guards.root_function(fn)
        names = _defaults(function)
        captured = Captured(LaterGraph(found["graph"]), guards=(), names=names, **found["parts"])  # type: ignore[arg-type]
        finder = Finder(fn, function, _parameters(captured, fn, args, kwargs), found["bound"])
        finder.known = found["known"]
        finder.asked = [partial(_answer, each, finder) for each in found["asked"]]
        bound = tuple(_found(finder, number) for number in found["bound"])
        static = tuple(bound[i.source.index] for i in captured.inputs if i.static)  # type: ignore[attr-defined]
        mine = tuple(_with_objects(guard, finder) for guard in found["guards"])
        _ask_again(found["asked"], finder)
        names |= {name: _resolved(v, finder) for name, v in found["names"].items()}
        captured.graph.objects = _resolved(found["inside"], finder)
        codes = _codes(finder) if found["rests"] else {}
        rests = {name: _with_scopes(rest, finder, codes) for name, rest in found["rests"].items()}
    except Mismatch:
        raise
    except Exception as error:  # of a path that leads nowhere, of the program's own properties, of damaged bytes
        raise _mismatch(error) from error
    _keep_apart(finder)
    names |= {name: own[name] for name in found["own"]}
    names |= {"F": function, "G": finder.globals, "P": static}
    if found["meshes"]:  # are found by now, and what has them in it is read again
        found = unpack(found["data"], _resolved(found["meshes"], finder))
        captured = replace(captured, **found["parts"])
    captured = replace(captured, guards=mine, names=names, bound=bound, continuations=rests)
    failed = failing(captured, fn, finder, args, kwargs)
    if failed:
        raise Mismatch(str(failed[0]))
    return Kept(captured, found["plan"])


def _parameters(captured: Captured, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return guards.parameters(captured, fn, args, kwargs)


def _defaults(function: Any) -> dict[str, Any]:
    """The parameters' defaults, by the names that a residual has for them."""
    if not isinstance(function, FunctionType):
        return {}
    code, given = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    found = {**dict(zip(positional, given, strict=True)), **(function.__kwdefaults__ or {})}
    return {f"{DEFAULT}{name}": value for name, value in found.items()}


# ---------------------------------------------------------------- what it relies on


def _found(finder: Finder, number: int) -> Any:
    """The object, if it is of the same making as the one that the entry was made for."""
    obj, known = finder.obj(number), finder.known[number]
    if number in finder.checked:
        return obj
    finder.checked.add(number)
    try:
        same = making(obj) == known.made
    except Unkept:
        same = False
    if not same or any(followed(obj, steps) is not _found(finder, part) for steps, part in known.parts):
        raise Mismatch(f"{described(obj)} is not what it was")
    return obj


def _keep_apart(finder: Finder) -> None:
    """Objects that were different are different, where that can be told."""
    held = [obj for obj in finder.found.values() if isinstance(obj, HOLDERS)]
    if len({id(obj) for obj in held}) < len(held):
        raise Mismatch("objects that were different are one")


def _without_objects(guard: Guard, numbers: Mapping[int, int]) -> Guard:
    if guard.kind in BY_OBJECT or guard.kind is GuardKind.EQUAL and objects_in(guard.payload):
        return replace(guard, payload=ObjectRef(numbers[id(guard.payload)]))
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
    if isinstance(payload, ObjectRef):
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


# ---------------------------------------------------------------- what follows graph breaks


def _rest(rest: Continuation, numbers: Mapping[int, int]) -> Continuation:
    """With references in the places of the frames' globals."""
    if rest.inside:
        raise Unkept("a generator waits where it ends in a graph break")
    return replace(rest, scopes=tuple(ObjectRef(numbers[id(scope)]) for scope in rest.scopes))  # type: ignore[misc]


def _with_scopes(rest: Any, finder: Finder, codes: Mapping[str, CodeType]) -> Continuation:
    points = tuple(replace(point, code=codes.get(code_digest(point.code), point.code)) for point in rest.points)
    return replace(rest, points=points, scopes=tuple(_found(finder, scope.number) for scope in rest.scopes))


def _codes(finder: Finder) -> dict[str, CodeType]:
    """This process's code, which knows its file, of the functions that the entry relies on."""
    rest = continuation_of(finder.fn)
    left = [point.code for point in rest.points] if rest is not None else []
    left += [obj.__code__ for obj in finder.found.values() if isinstance(obj, FunctionType)]
    found: dict[str, CodeType] = {}
    while left:
        code = left.pop()
        if found.setdefault(code_digest(code), code) is code:
            left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


# ---------------------------------------------------------------- what the process is asked


@dataclass(frozen=True)
class Question:
    """An `Asked`, with references to objects in the places of objects."""

    question: Any
    args: Any
    answer: Any


def _of_files(captured: Captured, objects: Sequence[Any]) -> list[Asked]:
    """Where the residual names places in the program's files, what it shows depends on what they are called."""
    values = [*captured.names.values(), *captured.bound]
    named = {each.filename for value in values if isinstance(value, tuple) for each in value if type(each) is Location}
    found = []
    for function in objects:
        if isinstance(function, FunctionType) and not trusted(function.__module__) or continuation_of(function):
            files = files_of(function)
            if any(file in named or repr(file) in captured.residual for file in files):
                found.append(Asked(files_of, (function,), files))
    return found


def _of_groups(captured: Captured, meshes: Sequence[Any]) -> list[Asked]:
    """What decides how processes compute together, beside the meshes themselves."""
    found = [Asked(group_named, (name,), group_named(name)) for name in sorted(operators.groups(captured.graph))]
    return [*found, Asked(ways_of_operators, (), ways_of_operators())] if meshes else found


def _question(each: Asked, numbers: Mapping[int, int]) -> Question:
    known = id(each.answer) in numbers
    answer = ObjectRef(numbers[id(each.answer)]) if known else Made(making(each.answer, whole=True))
    return Question(each.question, _referred(each.args, numbers), answer)


def _answer(each: Question, finder: Finder) -> Any:
    return each.question(*_resolved(each.args, finder))


def _ask_again(questions: Sequence[Question], finder: Finder) -> None:
    for number, each in enumerate(questions):
        found, expected = finder.answer(number), each.answer
        if isinstance(expected, ObjectRef):
            same = found is _found(finder, expected.number)
        else:
            same = making(found, whole=True) == expected.made
        if not same:
            raise Mismatch(f"{each.question.__name__} gives something else for {_resolved(each.args, finder)}")


def _referred(value: Any, numbers: Mapping[int, int]) -> Any:
    if type(value) is tuple:
        return tuple(_referred(part, numbers) for part in value)
    return ObjectRef(numbers[id(value)]) if id(value) in numbers else value


def _resolved(value: Any, finder: Finder) -> Any:
    if type(value) is tuple:
        return tuple(_resolved(part, finder) for part in value)
    return _found(finder, value.number) if type(value) is ObjectRef else value
