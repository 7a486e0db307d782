"""Calls that look for the line that they stand in: generated code makes them from frames under the user's names.

    logger.warning("slow")    ->    called_at((site of train.py:12 in step,), None, logger.warning, "slow")
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import CodeType, FrameType, TracebackType
from typing import Any

from dovetail.errors import Location

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50, "log": 0}
#: What looks at the frame of its caller, and of those around it, for names and lines alone.
LOOKING: tuple = (
    warnings.warn, *(getattr(owner, name) for owner in (logging, logging.Logger) for name in LEVELS),
)  # fmt: skip


def sites(stack: Sequence[Location]) -> tuple[CodeType, ...]:
    """Code for a frame at each place, outermost first."""
    return tuple(
        _calling().replace(
            co_filename=place.filename, co_name=place.function, co_qualname=place.function, co_firstlineno=place.line
        )
        for place in stack
    )


def called_at(
    codes: Sequence[CodeType], table: dict[str, Any] | None, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Call it from frames of these codes, whose globals are `table`."""
    call = partial(function, *args, **kwargs)
    for code in reversed(codes):
        call = partial(eval, code, {} if table is None else table, {"_call": call})
    return call()


def below(found: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is of the function, if `called_at` has called it."""
    if found is None or found.tb_frame.f_code is not called_at.__code__:
        return found
    for _ in range(1 + len(found.tb_frame.f_locals["codes"])):
        found = found and found.tb_next
    return found


@cache
def _calling() -> CodeType:
    return compile("_call()", "", "eval")


# ---------------------------------------------------------------- exceptions around a graph break

# Handled while the rest runs, with the user's lines in their tracebacks.


def under(error: BaseException | None, call: Callable[[], Any]) -> Any:
    """`call()` as an `except` block that handles `error` makes it."""
    if error is None:
        return call()
    kept = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException as handled:
        handled.__traceback__, handled.__context__ = kept
        return call()


def placed(error: BaseException, places: tuple[Location, ...]) -> BaseException:
    """`error`, just caught, with the user's frames in its traceback where generated code's frame was."""
    caught = error.__traceback__
    inner = below(caught.tb_next) if caught is not None else None
    return error.with_traceback(_extended(inner, places))


def raised_at(error: BaseException, places: tuple[Location, ...]) -> BaseException:
    """`error`, made anew, as if it had been raised there."""
    return error.with_traceback(_extended(None, places))


def _extended(inner: TracebackType | None, places: tuple[Location, ...]) -> TracebackType | None:
    for place in reversed(places):
        inner = TracebackType(inner, _frame(place), -1, place.line)
    return inner


def _frame(place: Location) -> FrameType:
    """A frame that has run, under the user's names."""
    return eval(_reader().replace(co_filename=place.filename, co_name=place.function), {"_frame": sys._getframe})


@cache
def _reader() -> CodeType:
    return compile("_frame()", "", "eval")
