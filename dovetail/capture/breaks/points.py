"""Running frames → points, with the text of what each slot holds."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from dovetail.capture.breaks.liveness import live
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.numbers.size_values import varying_parts
from dovetail.capture.values.base import NULL
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.objects import Handling, Lazy
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.captured import EMPTY, HANDLED, VALUE, Continuation, Point

if TYPE_CHECKING:
    from dovetail.capture.interpreter.frame import Frame
    from dovetail.capture.residual.rebuild import Rebuilder

AWAITED = "_awaited"  # what the frame inside returns


def point(
    rebuilder: Rebuilder, frame: Frame, index: int, values: list[Any], pushed: list[str]
) -> tuple[Point, list[str]]:
    """The frame as it goes on at `index`, `pushed` above the stack `values`; and texts for its arguments."""
    wanted = live(frame.code, index)
    region = frame.code.region(frame.at)
    if region is not None:  # what it waits for may raise
        wanted |= live(frame.code, region.target)
    reshapes = rebuilder.s.gradients.reshapes
    wanted |= {n for n, v in frame.locals.items() if _ends_with_its_frame(v) or reshapes and _has_history(v)}
    names = [n for n in frame.code.fast_names if n in wanted and frame.locals.get(n) is not None]
    cells = [n for n in names if isinstance(frame.locals[n], CellValue)]
    plain = [n for n in names if n not in cells]
    shape = [EMPTY if v is NULL else HANDLED if isinstance(v, Handling) else VALUE for v in values]
    stack = [v.error if isinstance(v, Handling) else v for v in values if v is not NULL]
    handed = [*(frame.locals[n] for n in (*plain, *cells)), *stack]
    given = [rebuilder.expr(value) for value in handed]
    for text in pushed:
        shape.append(VALUE)
        if text != AWAITED:
            given.append(text)
    parts = [(k, part) for k, value in enumerate(handed) for part in varying_parts(value)]
    awaited = AWAITED in pushed
    made = Point(frame.code.code, frame.at, index, tuple(plain), tuple(cells), tuple(shape), awaited, tuple(parts))
    return made, given


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
    rebuilder: Rebuilder, frames: list[Any], index: int, stack: list[Any], pushed: list[str]
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
