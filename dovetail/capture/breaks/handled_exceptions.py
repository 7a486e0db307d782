"""Exceptions around a graph break: handled while the rest runs, with the user's lines in their tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType, TracebackType
from typing import Any

from dovetail.capture.breaks.call_sites import below
from dovetail.errors import Location


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
