"""What else compiling takes of the process: memory for machine code, and the collector's absence."""

from __future__ import annotations

import contextlib
import gc
import mmap
from collections.abc import Iterator

#: More bytes than LLVM takes for texts of so many characters: 1.5 MiB were seen for the first 2,500, and then less than
#: 100 for each.
LEAST = 16 << 20
FOR_EACH_CHARACTER = 128
#: For a thread: its stack, and the address space in which the C library gives it memory (128 MiB in glibc).
FOR_A_THREAD = 160 << 20


def room_to_compile(characters: int, on_a_thread: bool = False) -> bool:
    """Asks the system for as many bytes of the address space as compiling may take, and gives them back: LLVM ends the
    process where there are none."""
    try:
        mmap.mmap(-1, LEAST + FOR_EACH_CHARACTER * characters + FOR_A_THREAD * on_a_thread).close()
    except (OSError, MemoryError):
        return False
    return True


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """In this block automatic collection is off, unless it was off already. Compilations run one at a time.

    They make many objects that stay, so the collector would look through all of a large program's objects again and
    again: with PyTorch loaded that is 0.1 s each time, a third of a large model's compile time. Later it would look
    through all new ones twice more, 0.25 s each time for a training step of RegNetY-016.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        UNSEEN.put_away(gc.get_count()[0])
        gc.enable()


class Unseen:
    """How many objects have been put among the old ones since the collector has looked through those."""

    few = 20_000  # fewer new ones are left to the collector
    #: More are looked through: what compiling leaves in cycles is some hundredths, and none of it has tensors' memory.
    most = 8_000_000

    def __init__(self) -> None:
        self.count = 0
        self.frozen = False  # has the program frozen objects? Asking counts them all: 20 ms

    def put_away(self, made: int) -> None:
        """Put new objects, so many of them, among the old ones."""
        if made < self.few:
            return
        self.count += made
        if self.count > self.most:
            self.count = 0
            gc.collect()
        else:
            self.grow_old()

    def grow_old(self) -> None:
        """Puts all objects among the old ones, as if collections had looked at them: those of modules stay, and looking
        through them takes 20 ms."""
        self.frozen = self.frozen or gc.get_freeze_count() > 0
        if not self.frozen:  # the program's own may not thaw
            gc.freeze()
            gc.unfreeze()


UNSEEN = Unseen()
