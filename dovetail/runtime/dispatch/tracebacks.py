"""Errors as the caller sees them: the program's own frames, without those of the machinery between them."""

from __future__ import annotations

from types import TracebackType

from dovetail.errors import DovetailError, GraphBreakError, InternalError, KernelFault
from dovetail.ir.callers import OURS


def cut(error: Exception) -> None:
    """Take our frames out of its traceback; of the errors that are ours only a mistake of ours keeps them."""
    if isinstance(error, (InternalError, KernelFault)):
        return
    if isinstance(error, GraphBreakError):
        error.__cause__, error.__suppress_context__ = None, True  # says the same, from within capture
    error.__traceback__ = None if isinstance(error, DovetailError) else _programs(error.__traceback__)


def _programs(found: TracebackType | None) -> TracebackType | None:
    """The entries of a traceback whose code is not ours."""
    kept = []
    while found is not None:
        if not found.tb_frame.f_code.co_filename.startswith(OURS):
            kept.append(found)
        found = found.tb_next
    rest: TracebackType | None = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
