"""End a capture in the middle of the program: rebuild every live value, make the step, hand over the rest.

A first capture finds the instruction that cannot be part of a graph and fails; a second one is told the number of
that instruction (`Session.stop`) and comes here just before executing it, with every frame as it is then. So nothing
that the failed instruction did while capturing has to be undone.
"""

from __future__ import annotations

from dataclasses import replace
from types import CoroutineType
from typing import Any, NoReturn

from dovetail.bytecode import ROWS, decode
from dovetail.capture.breaks.call_sites import placed
from dovetail.capture.breaks.points import chain
from dovetail.capture.breaks.steps import STEPS, Step, Successor
from dovetail.capture.breaks.suspended_generators import INSIDE, paused_at
from dovetail.capture.interpreter import generator_lifetime
from dovetail.capture.interpreter.frame import Frame
from dovetail.capture.residual.rebuild import Rebuilder, state_line
from dovetail.capture.residual.replay_effects import effects
from dovetail.capture.state.thread_state import leave_changed, set_variables
from dovetail.capture.values.base import Session
from dovetail.capture.values.objects import Handling
from dovetail.ir.captured import Continuation, Next


class Stopped(BaseException):
    """Unwinds the capture that has reached its stop; `Session.ending` is what was built there."""


class ResidualEnding:
    """The tail of a residual that ends in a break."""

    def __init__(self, rebuilder: Rebuilder, lines: list[str], continuations: dict[str, Continuation]) -> None:
        self.rebuilder, self.lines, self.continuations = rebuilder, lines, continuations


def stop(s: Session) -> NoReturn:
    """Called just before the instruction; never returns. Raises Unsupported if no break is possible here."""
    _check(s)
    s.release_replaced()
    rebuilder = Rebuilder(s)
    set_variables(s, rebuilder)
    frame = s.frames[-1]
    instruction = frame.code.instructions[frame.at]
    maker = STEPS.get(instruction.name)
    if maker is None:
        why = ROWS[instruction.name].whole
        s.unsupported("break-here", f"the graph cannot end at the instruction {instruction.name}: {why}")
    stack = list(frame.stack_)
    made: Step = maker(frame, instruction, stack, rebuilder)
    rest = [_rest(s, s.frames, way, stack, rebuilder, number) for number, way in enumerate(made.successors)]
    if len(rest) > 1:
        rest = [(replace(continuation, decided=True), line) for continuation, line in rest]
    replay = effects(rebuilder)
    caught = _caught(s, rebuilder, len(rest))
    steps = ["try:", *_indented(made.lines), "except BaseException as _e:", f"    {caught[1]}"]
    for way, (_, line) in zip(made.successors, rest):
        steps.append(line if way.condition is None else f"if {way.condition}: {line}")
    handler, line = caught
    if handler is not None:
        rest.append((handler, line))
    rebuilder.names.update(_Next=Next, _placed=placed)
    steps = _in_handler(s, rebuilder, steps)
    lines = [*replay, *rebuilder.after_effects(replay), *leave_changed(s, rebuilder), *steps]
    s.ends.ending = ResidualEnding(rebuilder, lines, {f"_C{k}": c for k, (c, _) in enumerate(rest)})
    raise Stopped


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _in_handler(s: Session, rebuilder: Rebuilder, steps: list[str]) -> list[str]:
    """The steps as the `except` block that they stand in makes them."""
    if s.current_exception is None:
        return steps
    error = rebuilder.expr(s.current_exception)
    return [
        f"_h = {error}", "_t = _h.__traceback__, _h.__context__",
        "try: raise _h",
        "except BaseException:", "    _h.__traceback__, _h.__context__ = _t", *_indented(steps),
    ]  # fmt: skip


def _caught(s: Session, rebuilder: Rebuilder, number: int) -> tuple[Continuation | None, str]:
    """What follows when the step raises: the innermost handler, entered as Python does, or the caller's."""
    places = s.stack()
    for depth in range(len(s.frames), 0, -1):
        frame = s.frames[depth - 1]
        region = frame.code.region(frame.at)
        if region is not None:
            offset = frame.code.instructions[frame.at].offset // 2
            error = f"_placed(_e, {rebuilder.known(places[len(frame.stack()) - 1 :])})"
            pushed = [str(offset), error] if region.lasti else [error]
            way = Successor(None, region.target, pushed)
            return _rest(s, s.frames[:depth], way, frame.stack_[: region.depth], rebuilder, number)
    return None, f"raise _placed(_e, {rebuilder.known(places)})"


def _check(s: Session) -> None:
    """Refuse where the rest could not be resumed as it was."""
    if not all(frame.direct for frame in s.frames[1:]):
        s.unsupported("break-here", "a built-in or library function waits for this code in the middle of its own work")
    name = generator_lifetime.in_use(s)
    if name is not None:
        s.unsupported("break-here", f"the generator {name}() waits in a block that Python leaves when it is dropped")
    markers = [value for frame in s.frames for value in frame.stack_ if isinstance(value, Handling)]
    if s.current_exception is not (markers[-1].error if markers else None):
        s.unsupported("break-in-block", "the code is handling an exception")
    if s.modes.undo:
        s.unsupported("break-in-block", "the code has switched attention kernels, and back later")
    if s.overrides.changed():
        s.unsupported("break-in-block", "the code has entered a torch function mode that is still in force")


def _rest(
    s: Session, frames: list, way: Successor, stack: list, rebuilder: Rebuilder, number: int
) -> tuple[Continuation, str]:
    """What goes on after the step, and the line that hands over to it.

    The frames of a generator are left in its state; who waits for the generator makes the same step again.
    """
    owners = [f.owner for f in s.frames[len(frames) :] if f.owner is not None]
    lines = [state_line(rebuilder, rebuilder.expr(owner), None, []) for owner in owners]
    index, pushed, inside = way.index, way.pushed, []
    for first in range(len(frames) - 1, 0, -1):
        owner = frames[first].owner
        if owner is not None:
            rest, given = chain(rebuilder, frames[first:], index, stack, pushed)
            inside.append(paused_at(INSIDE, rest))
            lines.append(state_line(rebuilder, rebuilder.expr(owner), inside[-1], given))
            frames, index, stack, pushed = _advancing(s, frames[:first], owner)
    rest, given = chain(rebuilder, frames, index, stack, pushed)
    rest = replace(rest, inside=tuple(inside))
    arguments = "".join(f"{a}, " for a in given)
    return rest, "; ".join([*lines, f"return _Next(_C{number}, ({arguments}))"])


def advance(generator: Any) -> Any:
    """The next item of a generator."""
    return next(generator)


def advance_coroutine(coroutine: Any) -> Any:
    """What a coroutine yields next."""
    return coroutine.send(None)


def _advancing(s: Session, frames: list, owner: Any) -> tuple[list, int, list, list[str]]:
    """Frames, place, stack and what is pushed on it for the innermost frame to advance the generator once more."""
    frame = frames[-1]
    again = ROWS[frame.code.instructions[frame.at].name].again
    if again is not None:
        if frame.stack_[-1] is not owner:
            s.unsupported("break-here", "the graph cannot end inside what another iterator reads")
        return frames, frame.at, frame.stack_, list(again)
    # What stands for an iterator of itertools has its class, which knows no `send`.
    function, waiting = (advance_coroutine, "coroutine") if owner.kind is CoroutineType else (advance, "generator")
    inner = Frame(s, decode(function.__code__), s.scope(function.__globals__, __name__), None)
    inner.locals[waiting] = owner
    return [*frames, inner], 0, [], []
