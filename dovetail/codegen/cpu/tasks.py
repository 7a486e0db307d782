"""Loops over the tasks of a phase: task numbers as one digit for each range."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.loops import LoopEmitter, States
from dovetail.ir.dims import Symbol


def run(
    emitter: LoopEmitter, digits: list[Symbol], axis: Symbol | None, states: States,
    body: Callable[[Val | None, Val | None, States], States],
) -> States:
    """`for task in [%lo, %hi)`: bind the digits; with an `axis`, its segment is the last digit.

    `body(start, end, states)` gets the bounds of the segment.
    """
    em, b = emitter.em, emitter.b
    extents = [em.indices.extent(s.extent) for s in digits]  # type: ignore[arg-type]
    if axis is not None:
        extents.append(Val("%segments", "i64", 1, 0))
    first = _digits(emitter, extents)
    many = len(extents) > 1
    flat = [v for state in states for v in state]
    count = len(extents) if many else 0

    def task(index: Val, names: list[str]) -> list[str]:
        now = [Val(n, "i64", 1, b.depth) for n in names[:count]] if many else [index]
        for symbol, digit in zip(digits, now, strict=False):
            em.indices.bound[symbol] = digit
        inside = emitter.rewrap(states, names[count:], b.depth)
        start, end = (None, None) if axis is None else _segment(emitter, axis, now[-1])
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


def _segment(emitter: LoopEmitter, axis: Symbol, number: Val) -> tuple[Val, Val]:
    """Bounds of a segment of the vectorised range."""
    w, length = emitter.w, Val("%segment", "i64", 1, 0)
    start = w.binary("mul", number, length)
    return start, w.minmax("min", w.binary("add", start, length), emitter.em.indices.extent(axis.extent), "int")  # type: ignore[arg-type]
