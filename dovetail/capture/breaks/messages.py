"""How messages speak of what follows a graph break: of its values as the program does, and of the program's own line.

    p1_h                ->   h                   a variable
    p3_stack0           ->   int(h.sum())        what the instruction at which the graph ended gave
    p2_stack1           ->   next(names)         the item of a loop
    p0_stack0           ->   <value in line 16>  what an expression had computed by then
"""

from __future__ import annotations

import linecache
import re

from dovetail.bytecode import ROWS, decode
from dovetail.ir.callers import is_pythons
from dovetail.ir.captured import Continuation, Point
from dovetail.ir.stores import remembered

MOST = 60  # characters of an expression
_NAME = re.compile(r"\b(p\d+_\w+)(\.cell_contents)?")


def shown(rest: Continuation) -> Point:
    """The innermost of the suspended frames that is neither PyTorch's nor Python's own."""
    own = (p for p in reversed(rest.points) if not is_pythons(p.code.co_filename))
    return next(own, rest.points[-1])


def as_called(rest: Continuation, text: str) -> str:
    """`text` with what the program calls the parameters."""
    return _NAME.sub(lambda found: _called(rest).get(found[1], found[0]), text) if "p" in text else text


@remembered(5000)
def _called(rest: Continuation) -> dict[str, str]:
    names = iter(rest.parameters())
    found: dict[str, str] = {}
    for number, point in enumerate(rest.points, 1):
        found |= {next(names): name for name in (*point.locals, *point.cells)}
        line = decode(point.code).position(point.at)[0]
        slots = [f"<value in line {line}>" if line else "<value>"] * (point.given - point.result)
        if slots and number == len(rest.points) and (given := _given(point)):
            slots[-1] = given
        found |= {next(names): slot for slot in slots}
    return found


def _given(point: Point) -> str:
    """The text of what the instruction pushed that the frame stands at."""
    code = decode(point.code)
    instruction = code.instructions[point.at].name
    text = " ".join(_segment(point.code.co_filename, *code.position(point.at)).split())
    text = text if len(text) <= MOST else text[: MOST - 1] + "…"
    if text and instruction == "FOR_ITER":
        return f"next({text})"
    return text if ROWS[instruction].gives else ""


def _segment(filename: str, line: int | None, end: int | None, column: int | None, stop: int | None) -> str:
    """A part of the source; columns count bytes."""
    if line is None or end is None or column is None or stop is None:
        return ""
    lines = [linecache.getline(filename, number).encode() for number in range(line, end + 1)]
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][column:]
    return b"".join(lines).decode(errors="replace")
