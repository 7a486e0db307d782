"""Is an object made inside surely alive? A weak reference to it gives it then.

What the running frames hold is alive in eager mode too. Of anything else one cannot tell: it may be garbage in a cycle.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from dovetail.capture.values.base import MISSING, Session
from dovetail.capture.values.callables import CellValue, MethodValue
from dovetail.capture.values.containers import DictValue, SequenceValue
from dovetail.capture.values.objects import ObjectValue


def held(s: Session, target: Any) -> bool:
    """Is it from outside, or does a running frame reach it through what is known to hold it?"""
    if getattr(target, "real", MISSING) is not MISSING or getattr(target, "origin", None) is not None:
        return True
    waiting = [v for f in s.frames for v in (*f.locals.values(), *f.stack_)]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value is target:
            return True
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(_parts(value))
    return False


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, SequenceValue):
        yield from value.items
    if isinstance(value, DictValue):
        yield from (v for _, v in value.entries.values())
    if isinstance(value, ObjectValue) and value.cls is not weakref.ref:
        yield from value.attrs.values()
    if isinstance(value, MethodValue):
        yield value.receiver
    if isinstance(value, CellValue):
        yield value.contents
