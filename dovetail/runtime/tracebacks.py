"""Errors as the caller sees them: the program's own frames, without those of the machinery between them."""

from __future__ import annotations

import os
from types import TracebackType

from dovetail.errors import DovetailError, GraphBreakError, InternalError, KernelFault

_OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<dovetail")


def shown(error: Exception) -> Exception:
    """`error`, its traceback cut down; of an error of ours only a mistake of ours keeps all frames."""
    if isinstance(error, (InternalError, KernelFault)):
        return error
    if isinstance(error, GraphBreakError):
        error.__cause__, error.__suppress_context__ = None, True  # says the same, from within capture
    if isinstance(error, DovetailError):
        return error.with_traceback(None)
    return error.with_traceback(_programs(error.__traceback__))


def _programs(found: TracebackType | None) -> TracebackType | None:
    """The entries of a traceback whose code is not ours."""
    kept = []
    while found is not None:
        if not found.tb_frame.f_code.co_filename.startswith(_OURS):
            kept.append(found)
        found = found.tb_next
    rest: TracebackType | None = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
