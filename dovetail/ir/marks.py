"""What functions that `dovetail.compile` made say about themselves."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def mark(compiled: FunctionType, original: Any) -> None:
    """Note on `compiled` what it was made from."""
    vars(compiled).update(_dovetail_original=original, _dovetail_code=compiled.__code__)


def original_of(fn: Any) -> Any:
    """What a compiled function was made from; anything else is its own original.

    `functools.wraps` copies notes to decorators' functions, which do more than call what they wrap: theirs name
    another code than their own.
    """
    notes = getattr(fn, "__dict__", {}) if isinstance(fn, FunctionType) else {}
    return notes["_dovetail_original"] if notes.get("_dovetail_code") is getattr(fn, "__code__", 0) else fn
