"""Running frames → points, with the text of what each slot holds."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from dovetail.bytecode import ROWS, UNKNOWN, Code, Instruction, Row
from dovetail.capture.breaks.walk_values import walk_text
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.numbers.size_values import varying_parts
from dovetail.capture.values.base import NULL
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.objects import Handling, Lazy
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.captured import EMPTY, HANDLED, VALUE, Continuation, Point
from dovetail.ir.stores import remembered

if TYPE_CHECKING:
    from dovetail.capture.interpreter.frame import Frame
    from dovetail.capture.residual.rebuild import Rebuilder

AWAITED = "_awaited"  # what the frame inside returns


def point(
    rebuilder: Rebuilder, frame: Frame, index: int, values: list, pushed: list[str]
) -> tuple[Point, list[str]]:
    """The frame as it goes on at `index`, `pushed` above the stack `values`; and texts for its arguments."""
    names = _wanted(rebuilder, frame, index)
    cells = [n for n in names if isinstance(frame.locals[n], CellValue)]
    plain = [n for n in names if n not in cells]
    shape = [EMPTY if v is NULL else HANDLED if isinstance(v, Handling) else VALUE for v in values]
    stack = [v.error if isinstance(v, Handling) else v for v in values if v is not NULL]
    handed = [*(frame.locals[n] for n in (*plain, *cells)), *stack]
    given = [rebuilder.expr(value) for value in handed[: len(names)]]
    given += [walk_text(rebuilder, value) for value in stack]
    for text in pushed:
        shape.append(VALUE)
        if text != AWAITED:
            given.append(text)
    parts = [(k, part) for k, value in enumerate(handed) for part in varying_parts(value)]
    awaited = AWAITED in pushed
    made = Point(frame.code.code, frame.at, index, tuple(plain), tuple(cells), tuple(shape), awaited, tuple(parts))
    return made, given


def _wanted(rebuilder: Rebuilder, frame: Frame, index: int) -> list[str]:
    """Names of the variables that the rest needs."""
    wanted = live(frame.code, index)
    region = frame.code.region(frame.at)
    if region is not None:  # what it waits for may raise
        wanted |= live(frame.code, region.target)
    reshapes = rebuilder.s.gradients.reshapes
    wanted |= {n for n, v in frame.locals.items() if _ends_with_its_frame(v) or reshapes and _has_history(v)}
    return [n for n in frame.code.fast_names if n in wanted and frame.locals.get(n) is not None]


def _ends_with_its_frame(value: Any) -> bool:
    """A generator that waits is closed when its variable goes, read again or not."""
    if isinstance(value, Lazy):
        return isinstance(value.real, GeneratorType)
    return isinstance(value, GeneratorValue) and value.state == "waiting"


def _has_history(value: Any) -> bool:
    try:
        return isinstance(value, TensorValue) and value.fake.grad_fn is not None
    except RuntimeError:  # PyTorch refuses to tell that of some views
        return False


def _awaited(frame: Frame) -> list[str]:
    return [AWAITED] if frame.takes_result() else []


def started(rebuilder: Rebuilder, frame: Frame) -> tuple[Point, list[str]]:
    """A frame that has not run yet: its parameters, and the cells that it closes over."""
    code = frame.code.code
    given = [n for n in frame.code.fast_names[: len(code.co_varnames)] if n in frame.locals]
    texts = [rebuilder.expr(frame.locals[n]) for n in (*given, *code.co_freevars)]
    return Point(code, 0, 0, tuple(given), code.co_freevars, ()), texts


def chain(
    rebuilder: Rebuilder, frames: list, index: int, stack: list, pushed: list[str]
) -> tuple[Continuation, list[str]]:
    """Frames that wait for one another, outermost first; the innermost goes on at `index`."""
    points, arguments = [], []
    for frame in frames[:-1]:
        made, given = point(rebuilder, frame, frame.ip, frame.stack_, _awaited(frame))
        points.append(made)
        arguments += given
    made, given = point(rebuilder, frames[-1], index, stack, pushed)
    scopes = tuple(frame.scope.table for frame in frames)
    return Continuation((*points, made), scopes), [*arguments, *given]


# ---------------------------------------------------------------- which variables the rest of a function can still read


SEE_ALL = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"))


@remembered(5000)
def live(code: Code, index: int) -> frozenset[str]:
    """Names of locals that may be read before they are assigned when the code goes on at `index`."""
    if not SEE_ALL.isdisjoint(code.code.co_names):
        return frozenset(code.fast_names)
    always = ("__class__", *code.code.co_varnames[:1]) if "__class__" in code.code.co_freevars else ()  # super()
    return _tables(code)[index] | frozenset(always)


@remembered(5000)
def _tables(code: Code) -> tuple[frozenset[str], ...]:
    """Live names before each instruction: the least fixed point of the backward equations."""
    instructions = code.instructions
    count = len(instructions)
    successors = [_successors(code, k) for k in range(count)]
    effects = [_effect(i) for i in instructions]
    found: list[frozenset[str]] = [frozenset()] * (count + 1)
    changed = True
    while changed:
        changed = False
        for k in range(count - 1, -1, -1):
            after: frozenset[str] = frozenset().union(*(found[n] for n in successors[k][0]))
            reads, writes = effects[k]
            now = reads | (after - writes)
            for handler in successors[k][1]:
                now |= found[handler]
            if now != found[k]:
                found[k], changed = now, True
    return tuple(found)


def _successors(code: Code, index: int) -> tuple[list[int], list[int]]:
    instruction = code.instructions[index]
    out = []
    if not _row(instruction).ends:
        out.append(index + 1)
    if instruction.target >= 0:
        out.append(instruction.target)
    region = code.region(index)
    return out, [region.target] if region is not None else []


def _effect(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """(names read, names written)."""
    row, named = _row(instruction), frozenset((instruction.value,))
    return named if row.reads else frozenset(), named if row.writes else frozenset()


def _row(instruction: Instruction) -> Row:
    return ROWS.get(instruction.name, UNKNOWN)
