"""Generators that nothing refers to any more: Python closes them at once, which runs their `finally` blocks.

A value of the traced program is referred to by the frames, containers and objects that stand for the program's own, so
the interpreter's count of references to a generator's value falls to ours alone when the program drops its last one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dovetail.bytecode import ROWS
from dovetail.capture.values.base import Raised, Session
from dovetail.capture.values.iterators import IteratorValue

if TYPE_CHECKING:
    from dovetail.capture.interpreter.frame import Frame

_LISTED: list[list] = [[]]
_OURS = sys.getrefcount(_LISTED[0])  # what a value counts that only a list refers to


def waits(s: Session, generator: Any) -> None:
    """It has yielded; remember it if closing it could be noticed."""
    if generator.source is None and _cleans_up(generator.frame):
        s.waiting.append(generator)


def running(s: Session, generator: Any) -> None:
    """The generator runs again: nothing waits for its closing."""
    s.waiting[:] = [g for g in s.waiting if g is not generator]


def _cleans_up(frame: Frame) -> bool:
    """Is there a handler of the user's around the place where it waits?"""
    code = frame.code
    region = code.region(frame.at)
    while region is not None and code.instructions[region.target].name in _BY_THE_COMPILER:
        region = code.region(region.target)
    return region is not None


#: What handlers begin with that a compiler puts around every generator and every `yield from`.
_BY_THE_COMPILER = frozenset(("STOPITERATION_ERROR", "CLEANUP_THROW"))


def close(s: Session) -> None:
    """Close those that the last instruction dropped."""
    waiting = s.waiting
    for k in range(len(waiting)):
        if sys.getrefcount(waiting[k]) == _OURS:
            generator = waiting.pop(k)
            _close(s, generator)
            del generator
            return close(s)  # which may have dropped others
    return None


def _close(s: Session, generator: Any) -> None:
    try:
        ignored = generator.close(s) is not None
    except Raised:
        ignored = True
    if ignored:
        name = generator.frame.code.code.co_name
        s.unsupported(
            "abandoned-generator", f"the generator {name}() raises or yields while Python closes it unfinished"
        )


def leave(s: Session, frame: Frame) -> None:
    """The frame returns: its variables go one by one, in their order."""
    for name in [*frame.code.code.co_varnames, *frame.locals]:
        if frame.locals.pop(name, None) is not None and s.waiting:
            close(s)


def in_use(s: Session) -> str | None:
    """The name of one that the program may drop before its end: after a graph break it would be closed too late.

    A loop with another way out holds it, or a variable that is assigned again or whose frame returns earlier than the
    compiled function. One that an object holds, as a context manager does, is ended by that object.
    """
    for generator in s.waiting:
        if any(_may_drop(frame, generator, number) for number, frame in enumerate(s.frames)):
            return generator.frame.code.code.co_name
    return None


def _may_drop(frame: Frame, generator: Any, depth: int) -> bool:
    for name, value in frame.locals.items():
        if name[0] != "." and _walks(value, generator) and (depth or _is_set_later(frame, name)):
            return True
    return any(_walks(value, generator) for value in frame.stack_) and _loop_has_another_way_out(frame)


def _walks(value: Any, generator: Any) -> bool:
    """Is it the generator, or an iterator that takes its items, as `enumerate` and `zip` do?"""
    if value is generator or not isinstance(value, IteratorValue):
        return value is generator
    inner = getattr(value, "frame", None)
    behind = [*inner.locals.values(), *inner.stack_] if inner is not None and inner is not generator.frame else []
    behind += [getattr(value, "iterator", None), *getattr(value, "iterators", ())]
    return any(_walks(v, generator) for v in behind)


def _is_set_later(frame: Frame, name: str) -> bool:
    """May the variable be stored to or deleted after the running instruction?"""
    instructions = frame.code.instructions
    starts = [i.target for i in instructions[frame.at :] if 0 <= i.target <= frame.at]  # of the loops around it
    later = instructions[min(starts, default=frame.at) :]
    return any(i.value == name and i.name in _STORES for i in later)


_STORES = frozenset(name for name, row in ROWS.items() if row.writes)


def _loop_has_another_way_out(frame: Frame) -> bool:
    """Does a loop around the running instruction end in any other way than when its iterator is exhausted?"""
    instructions = frame.code.instructions
    for start, head in enumerate(instructions[: frame.at + 1]):
        if head.name == "FOR_ITER" and frame.at < head.target:
            body = instructions[start + 1 : head.target]
            inside = all(start <= i.target < head.target for i in body if i.target >= 0)
            if not inside or body[-1].target != start or any(i.name == "RETURN_VALUE" for i in body):
                return True
    return False
