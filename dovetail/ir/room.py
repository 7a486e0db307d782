"""Is there room for what native code is about to allocate? LLVM ends the process where there is none."""

from __future__ import annotations

import mmap

#: More bytes than LLVM takes for texts of so many characters: 1.5 MiB were seen for the first 2,500, and then less than
#: 100 for each.
LEAST = 16 << 20
FOR_EACH_CHARACTER = 128


def room_to_compile(characters: int) -> bool:
    """Asks the system for as many bytes of the address space as compiling may take, and gives them back."""
    try:
        mmap.mmap(-1, LEAST + FOR_EACH_CHARACTER * characters).close()
    except (OSError, MemoryError):
        return False
    return True
