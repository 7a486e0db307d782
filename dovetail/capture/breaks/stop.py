"""End a capture in the middle of the program: rebuild every live value, make the step, hand over the rest.

A first capture finds the instruction that cannot be part of a graph and fails; a second one is told the number of
that instruction (`Session.stop`) and comes here just before executing it, with every frame as it is then. So nothing
that the failed instruction did while capturing has to be undone.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.breaks.handled import placed
from dovetail.capture.breaks.liveness import live
from dovetail.capture.breaks.steps import PUSH_NULL, STEPS, Step, Way
from dovetail.capture.rebuild import Rebuilder
from dovetail.capture.values.base import NULL
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.objects import Handling
from dovetail.ir.captured import EMPTY, HANDLED, VALUE, Continuation, Next, Point
from dovetail.ir.marks import STRICT


class Stopped(BaseException):
    """Unwinds the capture that has reached its stop; `Session.ending` is what was built there."""


class Ending:
    """The tail of a residual that ends in a break."""

    def __init__(self, rebuilder: Rebuilder, lines: list[str], continuations: dict[str, Continuation]) -> None:
        self.rebuilder, self.lines, self.continuations = rebuilder, lines, continuations


def stop(s: Any) -> None:
    """Called just before the instruction; never returns. Raises Unsupported if no break is possible here."""
    _check(s)
    s.release_replaced()
    rebuilder = Rebuilder(s)
    frame = s.frames[-1]
    instruction = frame.code.instructions[frame.at]
    maker = STEPS.get(instruction.name)
    if maker is None:
        s.unsupported("break-here", f"the graph cannot end at the instruction {instruction.name}")
    stack = list(frame.stack_)
    made: Step = maker(frame, instruction, stack, rebuilder)
    rest = [_rest(s, s.frames, way, stack, rebuilder, number) for number, way in enumerate(made.ways)]
    replay = rebuilder.effects()
    caught = _caught(s, rebuilder, len(rest))
    steps = ["try:", *_indented(made.lines), "except BaseException as _e:", f"    {caught[1]}"]
    for way, (_, line) in zip(made.ways, rest):
        steps.append(line if way.condition is None else f"if {way.condition}: {line}")
    if caught[0] is not None:
        rest.append(caught)
    rebuilder.names.update(_Next=Next, _placed=placed)
    entering = modes(s, rebuilder)
    lines = [*replay, *entering, *_in_handler(s, rebuilder, steps)]
    s.ending = Ending(rebuilder, lines, {f"_C{k}": c for k, (c, _) in enumerate(rest)})
    raise Stopped


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _in_handler(s: Any, rebuilder: Rebuilder, steps: list[str]) -> list[str]:
    """The steps as the `except` block that they stand in makes them."""
    if s.current_exception is None:
        return steps
    error = rebuilder.expr(s.current_exception)
    return [
        f"_h = {error}", "_t = _h.__traceback__, _h.__context__",
        "try: raise _h",
        "except BaseException:", "    _h.__traceback__, _h.__context__ = _t", *_indented(steps),
    ]  # fmt: skip


def modes(s: Any, rebuilder: Rebuilder) -> list[str]:
    """Lines that put the modes in force that the traced code left."""
    mode = torch.is_grad_enabled()
    lines = [f"{rebuilder.known(torch._C._set_grad_enabled)}({mode})"] if mode != s.grad_mode else []
    if s.strict != s.strict_before:
        lines.append(f"{rebuilder.known(STRICT)}.set({s.strict})")
    return lines


def _caught(s: Any, rebuilder: Rebuilder, number: int) -> tuple[Continuation | None, str]:
    """What follows when the step raises: the innermost handler, entered as Python does, or the caller's."""
    places = s.stack()
    for depth in range(len(s.frames), 0, -1):
        frame = s.frames[depth - 1]
        region = frame.code.region(frame.at)
        if region is not None:
            offset = frame.code.instructions[frame.at].offset // 2
            error = f"_placed(_e, {rebuilder.known(places[depth - 1 :])})"
            pushed = [str(offset), error] if region.lasti else [error]
            way = Way(None, region.target, pushed)
            return _rest(s, s.frames[:depth], way, frame.stack_[: region.depth], rebuilder, number)
    return None, f"raise _placed(_e, {rebuilder.known(places)})"


def _check(s: Any) -> None:
    """Refuse where the rest could not be resumed as it was."""
    if not all(frame.direct for frame in s.frames[1:]):
        s.unsupported("break-here", "a built-in or library function waits for this code in the middle of its own work")
    markers = [value for frame in s.frames for value in frame.stack_ if isinstance(value, Handling)]
    if s.current_exception is not (markers[-1].error if markers else None):
        s.unsupported("break-in-block", "the code is handling an exception")
    if s.open_contexts or s.context_values:
        s.unsupported("break-in-block", "the code has changed a mode that is still in force")


def _rest(
    s: Any, frames: list[Any], way: Way, stack: list[Any], rebuilder: Rebuilder, number: int
) -> tuple[Continuation, str]:
    points, arguments = [], []
    for frame in frames:
        innermost = frame is frames[-1]
        values = stack if innermost else frame.stack_
        index = way.index if innermost else frame.ip
        point, given = _point(s, frame, index, values, way.pushed if innermost else ["_awaited"], rebuilder)
        points.append(point)
        arguments += given
    scopes = tuple(frame.scope.table for frame in frames)
    given = "".join(f"{a}, " for a in arguments)
    return Continuation(tuple(points), scopes), f"return _Next(_C{number}, ({given}))"


def _point(
    s: Any, frame: Any, index: int, values: list[Any], pushed: list[str], rebuilder: Rebuilder
) -> tuple[Point, list[str]]:
    wanted = live(frame.code, index)
    region = frame.code.region(frame.at)
    if region is not None:  # what it waits for may raise
        wanted |= live(frame.code, region.target)
    names = [n for n in frame.code.fast_names if n in wanted and frame.locals.get(n) is not None]
    cells = [n for n in names if isinstance(frame.locals[n], CellValue)]
    plain = [n for n in names if n not in cells]
    given = [rebuilder.expr(frame.locals[n]) for n in (*plain, *cells)]
    shape = [EMPTY if v is NULL else HANDLED if isinstance(v, Handling) else VALUE for v in values]
    given += [rebuilder.expr(v.error if isinstance(v, Handling) else v) for v in values if v is not NULL]
    for text in pushed:
        shape.append(EMPTY if text == PUSH_NULL else VALUE)
        if text not in (PUSH_NULL, "_awaited"):
            given.append(text)
    point = Point(frame.code.code, frame.at, index, tuple(plain), tuple(cells), tuple(shape))
    return point, given
