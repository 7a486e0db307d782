"""What differs between versions of Python besides the set of their opcodes: one row a version.

A version without a row is never guessed at: `decode` has no tables for it, and `dovetail.supported` refuses it before.

Sources: the "Python Bytecode Instructions" chapter of the `dis` documentation of each version, and what the compiler of
each version makes of its standard library (`tests/bytecode`).
"""

from __future__ import annotations

import sys

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Python:
    """One version.

    `null_below`: a call's NULL lies below the callable, not above it. `compare_shift`: flag bits below a comparison's
    index; `compare_bool`: the one that asks for a bool. `attribute_bit`: LOAD_ATTR has a flag for method calls.
    `exit_below`: how deep `__exit__` lies for WITH_EXCEPT_START. `always_keywords`: CALL_FUNCTION_EX takes keywords or
    NULL, and has no flag that says which.
    """

    minor: int
    null_below: bool
    compare_shift: int
    compare_bool: int
    attribute_bit: bool
    exit_below: int = 4
    always_keywords: bool = False


PYTHONS = {
    row.minor: row
    for row in (
        Python(11, null_below=True, compare_shift=0, compare_bool=0, attribute_bit=False),
        Python(12, null_below=True, compare_shift=4, compare_bool=0, attribute_bit=True),
        Python(13, null_below=False, compare_shift=5, compare_bool=16, attribute_bit=True),
        Python(14, False, 5, 16, True, exit_below=5, always_keywords=True),
    )
}
NEWEST = max(PYTHONS)

VERSION = tuple(sys.version_info[:3])
MINOR = VERSION[1]
HERE = PYTHONS.get(MINOR)  # None: a version without a row

#: The versions whose code capture runs. For the others decoding alone has been tested.
CAPTURED = range(11, 14)
