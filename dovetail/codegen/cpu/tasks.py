"""Loops over the tasks of a phase: task numbers as one digit for each range."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.loops import LoopEmitter, States
from dovetail.ir.dims import Symbol
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Segments:
    """How a phase cuts the vectorised range: every task has one segment of it.

    `at` is the segment number's place among the task's digits; `length` and `count` are values.
    """

    axis: Symbol
    at: int
    length: Val
    count: Val


def from_context(axis: Symbol, at: int) -> Segments:
    """As the launcher cut it, to suit the number of threads."""
    return Segments(axis, at, Val("%segment", "i64", 1, 0), Val("%segments", "i64", 1, 0))


def run(
    emitter: LoopEmitter, digits: list[Symbol], segments: Segments | None, states: States,
    body: Callable[[Val | None, Val | None, States], States],
) -> States:
    """`for task in [%lo, %hi)`: bind the digits, the last fastest.

    `body(start, end, states)` gets the bounds of the task's segment.
    """
    em, b = emitter.em, emitter.b
    extents = [em.indices.extent(s.extent) for s in digits]  # type: ignore[arg-type]
    if segments is not None:
        extents.insert(segments.at, segments.count)
    first = _digits(emitter, extents)
    many = len(extents) > 1
    flat = [v for state in states for v in state]
    count = len(extents) if many else 0

    def task(index: Val, names: list[str]) -> list[str]:
        now = [Val(n, "i64", 1, b.depth) for n in names[:count]] if many else [index]
        own = list(now)
        number = own.pop(segments.at) if segments is not None else None
        for symbol, digit in zip(digits, own, strict=False):
            em.indices.bound[symbol] = digit
        inside = emitter.rewrap(states, names[count:], b.depth)
        start, end = (None, None) if segments is None else _bounds(emitter, segments, number)
        following = body(start, end, inside)
        moved = _advance(emitter, now, extents) if many else []
        return moved + [v.text for state in following for v in state]

    carried = [("i64", v.text) for v in first] if many else []
    carried += [(v.type, v.text) for v in flat]
    results = b.loop(Val("%lo", "i64", 1, 0), Val("%hi", "i64", 1, 0), "1", carried, task)
    return emitter.rewrap(states, results[count:], b.depth)


def _digits(emitter: LoopEmitter, extents: list[Val]) -> list[Val]:
    """The digits of the first task."""
    rest = Val("%lo", "i64", 1, 0)
    first: list[Val] = []
    for size in extents[:0:-1]:
        first.insert(0, emitter.w.binary("urem", rest, size))
        rest = emitter.w.binary("udiv", rest, size)
    return [rest, *first]


def _advance(emitter: LoopEmitter, digits: list[Val], extents: list[Val]) -> list[str]:
    """The digits of the next task."""
    w = emitter.w
    following: list[str] = []
    carry = w.const(1, "i64")
    for k in range(len(digits) - 1, 0, -1):
        more = w.binary("add", digits[k], carry)
        over = w.compare("icmp eq", more, extents[k])
        following.insert(0, w.select(over, w.const(0, "i64"), more).text)
        carry = w.convert("zext", over, "i64")
    return [w.binary("add", digits[0], carry).text, *following]


def _bounds(emitter: LoopEmitter, segments: Segments, number: Val | None) -> tuple[Val, Val]:
    assert number is not None and segments.axis.extent is not None
    w = emitter.w
    start = w.binary("mul", number, segments.length)
    end = w.binary("add", start, segments.length)
    return start, w.minmax("min", end, emitter.em.indices.extent(segments.axis.extent), "int")
