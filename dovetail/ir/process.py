"""What compiling takes of the process: room on the stack, memory for machine code, and the collector's absence.

Compiling a program, and going on without compiling it, nests deeper than the program does. Python's limit stands for
the C stack, of which calls from Python to Python need none; tracing and compiling nest such calls alone, so that the
limit may be raised while they run. It is the process's; the last to leave puts it back.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import sys
import threading
from collections.abc import Iterator
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


#: More bytes than LLVM takes for texts of so many characters: 1.5 MiB were seen for the first 2,500, and then less than
#: 100 for each.
LEAST = 16 << 20
FOR_EACH_CHARACTER = 128


def room_to_compile(characters: int) -> bool:
    """Asks the system for as many bytes of the address space as compiling may take, and gives them back: LLVM ends the
    process where there are none."""
    try:
        mmap.mmap(-1, LEAST + FOR_EACH_CHARACTER * characters).close()
    except (OSError, MemoryError):
        return False
    return True


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """In this block automatic collection is off, unless it was off already. Compilations run one at a time.

    They make many objects that stay, so the collector would look through all of a large program's objects again and
    again: with PyTorch loaded that is 0.1 s each time, a third of a large model's compile time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def grow_old() -> None:
    """Puts all objects among the old ones, as if collections had looked at them: those of modules stay, and looking
    through them takes 20 ms."""
    if not gc.get_freeze_count():  # the program's own may not thaw
        gc.freeze()
        gc.unfreeze()
