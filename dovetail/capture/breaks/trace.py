"""Trace what remains after a graph break: the suspended frames are made anew and run to the end."""

from __future__ import annotations

from typing import Any

from dovetail.bytecode import decode
from dovetail.capture.frame import Frame
from dovetail.capture.values.base import NULL, Raised, Value
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.objects import Handling, Lazy
from dovetail.errors import Unsupported
from dovetail.ir.captured import EMPTY, HANDLED, Continuation, Point
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Arg, Attr, Source

LATE = (int, float, complex, str, bytes)


def trace_continuation(s: Any, rest: Continuation, args: tuple[Any, ...]) -> Value:
    """The result of the outermost frame; `args` are the continuation's real arguments."""
    names = rest.parameters()
    s.header = ", ".join(names)
    given = iter(zip(args, map(Arg, names)))
    cells: dict[int, CellValue] = {}
    last = len(rest.points) - 1
    for number, (point, scope) in enumerate(zip(rest.points, rest.scopes)):
        frame = Frame(s, decode(point.code), s.scope(scope, scope.get("__name__")), None)
        frame.ip, frame.at, frame.direct = point.index, point.at, number > 0
        _fill(s, frame, point, given, cells, number < last)
        s.frames.append(frame)
    if len(cells) > 1:
        sources = [c.source.base for c in cells.values()]  # type: ignore[union-attr]
        s.guard(sources[0], GuardKind.DISTINCT, tuple(sources[1:]))
    return _run(s)


def _fill(s: Any, frame: Any, point: Point, given: Any, cells: dict[int, CellValue], awaits: bool) -> None:
    for name in point.locals:
        real, source = next(given)
        frame.locals[name] = _late(s, real, source)
    for name in point.cells:
        real, source = next(given)
        found = cells.get(id(real))
        if found is None:
            found = cells[id(real)] = s.cache[id(real)] = CellValue(None, real, Attr(source, "cell_contents"))
        else:
            s.guard(source, GuardKind.ALIAS, found.source.base)
        frame.locals[name] = found
    for kind in point.stack[: len(point.stack) - awaits]:
        frame.push(NULL if kind == EMPTY else _stacked(s, kind, *next(given)))


def _stacked(s: Any, kind: int, real: Any, source: Source) -> Value:
    value = _late(s, real, source)
    if type(value) is Lazy:
        value = s.wrap(value.real, value.source)
    if kind == HANDLED:
        value = Handling(value, s.current_exception)
        s.current_exception = value.error
    return value


def _late(s: Any, real: Any, source: Source) -> Any:
    """A value that the rest may never look at."""
    return s.wrap(real, source) if type(real) in LATE else Lazy(real, source)


def _run(s: Any) -> Value:
    """Run the innermost frame, give its result or its exception to the next one, and so on."""
    frames = s.frames
    raised: Raised | None = None
    try:
        while True:
            frame = frames[-1]
            try:
                if raised is not None:
                    raised = frame.unwind(raised)
                _, value = frame.run()
            except Raised as error:
                raised = error
                frames.pop()
                if not frames:
                    raise
                continue
            frames.pop()
            if not frames:
                return value
            frames[-1].push(value)
    except Unsupported as error:
        if not error.places:
            error.places, error.strict = tuple((f.tick, f.direct) for f in frames), s.strict
        raise
    finally:
        frames.clear()
