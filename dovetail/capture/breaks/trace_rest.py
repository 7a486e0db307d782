"""Trace what remains after a graph break: the suspended frames are made anew and run to the end."""

from __future__ import annotations

from dataclasses import replace
from types import BuiltinMethodType, MethodType
from typing import Any

import torch

from dovetail.bytecode import decode
from dovetail.capture.breaks.suspended_generators import SHELLS, state_of
from dovetail.capture.breaks.walk_values import walked
from dovetail.capture.interpreter.frame import Frame, GeneratorValue, run_frames
from dovetail.capture.outside.wrap import WRAPPERS, remember, wrap_object
from dovetail.capture.values.base import NULL, Session, Value
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.objects import Handling, Lazy, real_dict
from dovetail.ir.captured import EMPTY, HANDLED, Continuation, Point
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, Attr, Item, Source
from dovetail.ir.walks import Walk


@dataclass(frozen=True, slots=True)
class StateOf(Source):
    """The state beside a generator."""

    base: Source

    def expr(self) -> str:
        return f"_state_of({self.base.expr()})"

    def name(self) -> str:
        return self.base.name()


NUMBERS_AND_TEXTS = (int, float, complex, str, bytes)


def trace_continuation(s: Session, rest: Continuation, args: tuple) -> Value:
    """The result of the outermost frame; `args` are the continuation's real arguments."""
    names = rest.parameters()
    s.residual.header = ", ".join(names)
    given: list[tuple[Any, Source]] = list(zip(args, map(Arg, names)))
    exits = [(real, at) for real, at in given if getattr(real, "__name__", None) == "__exit__"]
    s.ends.blocks = [at for real, at in exits if isinstance(real, (MethodType, BuiltinMethodType))]
    return run_frames(s, suspended_frames(s, rest, given))[1]


def suspended_frames(s: Session, rest: Continuation, values: list[tuple[Any, Source]]) -> list[Frame]:
    """The continuation's frames made anew from its arguments and where they come from."""
    given = iter(_owners_first(s, values))
    cells: dict[int, CellValue] = {}
    frames = []
    for number, (point, scope) in enumerate(zip(rest.points, rest.scopes)):
        frame = Frame(s, decode(point.code), s.scope(scope, scope.get("__name__")), None)
        frame.ip, frame.at, frame.direct = point.index, point.at, number > 0
        _fill(s, frame, point, given, cells)
        frames.append(frame)
    if len(cells) > 1:
        sources = [c.source.base for c in cells.values()]  # type: ignore[union-attr]
        s.guard(sources[0], GuardKind.DISTINCT, tuple(sources[1:]))
    return frames


def wrap_generator(s: Session, obj: Any, source: Source | None) -> Value:
    """A generator that a graph break left behind is traced on; the user's own are native."""
    state = state_of(obj)
    if source is None or state.paused is None and not state.ended:
        return wrap_object(s, obj, source)
    s.guard(source, GuardKind.TYPE, type(obj))
    base = StateOf(source)
    s.residual.names["_state_of"] = state_of
    s.guard(Attr(base, "paused"), GuardKind.ID, state.paused)
    if state.paused is None:
        s.guard(Attr(base, "ended"), GuardKind.ID, True)
        return remember(s, obj, GeneratorValue(None, "done", source, obj))
    place, values = state.paused, Attr(base, "values")
    found: list[tuple[Any, Source]] = [(v, Item(values, k)) for k, v in enumerate(state.values)]
    made = GeneratorValue(None, place.kind, source, obj)
    remember(s, obj, made)
    outside = s.current_exception
    made.adopt(suspended_frames(s, place.rest, found))
    s.current_exception = outside  # what it handles itself is handled while it runs
    return made


WRAPPERS.update(dict.fromkeys(SHELLS, wrap_generator))


def _fill(s: Session, frame: Frame, point: Point, given: Any, cells: dict[int, CellValue]) -> None:
    for name in point.locals:
        real, source = next(given)
        frame.locals[name] = _late(s, real, source)
    for name in point.cells:
        real, source = next(given)
        found = cells.get(id(real)) or s.objects.by_identity.get(id(real))
        if found is None:
            found = CellValue(None, real, Attr(source, "cell_contents"))
            cells[id(real)] = s.objects.by_identity[id(real)] = found
        else:
            s.guard(source, GuardKind.ALIAS, found.source.base)  # type: ignore[union-attr]
        frame.locals[name] = found
    stack = [(kind, None if kind == EMPTY else next(given)) for kind in point.below_result]
    if stack and stack[-1][1] is not None and _begins_round(point):
        _is_one_of_many(s, *stack[-1][1])
    for kind, value in stack:
        frame.push(NULL if value is None else _stacked(s, kind, *value))


def _begins_round(point: Point) -> bool:
    """Has a loop just been given an item, which is on top of the stack?"""
    return point.index == point.at + 1 and decode(point.code).instructions[point.at].name == "FOR_ITER"


def _is_one_of_many(s: Session, item: Any, source: Source) -> None:
    """Other rounds have other modules: what is alike in them shall do."""
    if type(item) is tuple:  # of `enumerate`, `zip` and `items`
        for k, part in enumerate(item):
            _is_one_of_many(s, part, Item(source, k))
    elif isinstance(item, torch.nn.Module):
        s.table.varying = replace(s.table.varying, names=s.table.varying.names | {source.name()})


def _stacked(s: Session, kind: int, real: Any, source: Source) -> Value:
    value = walked(s, real, source) if type(real) is Walk else _late(s, real, source)
    if type(value) is Lazy:
        value = s.wrap(value.real, value.source)
    if kind == HANDLED:
        value = Handling(value, s.current_exception)
        s.current_exception = value.error
    return value


def _owners_first(s: Session, values: list[tuple[Any, Source]]) -> list[tuple[Any, Source]]:
    """An object is wrapped before its own dictionary, or a method of that, which is only another way to it."""
    tables = {id(t) for real, _ in values for t in (real, getattr(real, "__self__", None)) if type(t) is dict}
    for real, source in values if tables else ():
        if id(real_dict(real)) in tables:
            s.wrap(real, source)
    return values


def _late(s: Session, real: Any, source: Source) -> Any:
    """A value that the rest may never look at."""
    return s.wrap(real, source) if type(real) in NUMBERS_AND_TEXTS else Lazy(real, source)
