"""Python's recursion limit while we compile.

Compiling a program, and going on without compiling it, nests deeper than the program does. Python's limit stands for
the C stack, of which calls from Python to Python need none; tracing and compiling nest such calls alone, so that the
limit may be raised while they run. It is the process's; the last to leave puts it back.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

MARGIN = 64  # frames: what lies between the caller of a compiled function and the function itself, and more
NEAR = 2 * MARGIN  # where less than the margin is left
ROOM = NEAR + 3000  # what every stage but capture needs for the deepest expressions (`ir.loops.DEEPEST`), and more
PER_FRAME = 24  # what capture needs for each frame of the program's: 19 at most when measured


class _Limit:
    """The process's limit while there is a `Room`; `own` is the program's."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rooms = 0
        self.own = self.set_to = 0

    def raise_to(self, limit: int) -> None:
        if limit > sys.getrecursionlimit():
            self.set_to = limit
            sys.setrecursionlimit(limit)


_LIMIT = _Limit()


def of_program() -> int:
    """The limit that the program has set, or found."""
    return _LIMIT.own if _LIMIT.rooms else sys.getrecursionlimit()


def is_near() -> bool:
    """Is so little left that the program might not reach its own function through us?"""
    try:
        sys._getframe(of_program() - MARGIN)
    except ValueError:
        return False
    return True


def grow(frames: int) -> None:
    """Capture has gone so many of the program's frames deeper. Without effect outside a `Room`."""
    if _LIMIT.rooms:
        _LIMIT.raise_to(sys.getrecursionlimit() + frames * PER_FRAME)


class Room:
    """A block with so many frames more than the program's limit, however many such blocks there are around it."""

    __slots__ = ("frames",)

    def __init__(self, frames: int) -> None:
        self.frames = frames

    def __enter__(self) -> None:
        with _LIMIT.lock:
            if not _LIMIT.rooms:
                _LIMIT.own = _LIMIT.set_to = sys.getrecursionlimit()
            _LIMIT.rooms += 1
            _LIMIT.raise_to(_LIMIT.own + self.frames)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _LIMIT.lock:
            _LIMIT.rooms -= 1
            if not _LIMIT.rooms and sys.getrecursionlimit() == _LIMIT.set_to:  # else the program has set another
                sys.setrecursionlimit(_LIMIT.own)
