"""Calls that look for the line that they stand in: generated code makes them from frames under the user's names.

    logger.warning("slow")    ->    called_at((site of train.py:12 in step,), None, logger.warning, "slow")
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import CodeType, TracebackType
from typing import Any

from dovetail.errors import Location

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50, "log": 0}
#: What looks at the frame of its caller, and of those around it, for names and lines alone.
LOOKING: tuple[Any, ...] = (
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
