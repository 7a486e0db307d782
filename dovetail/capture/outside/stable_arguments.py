"""What native code may be shown while capturing: only what cannot change, or what the entry relies on.

An object of a user's class has attributes that nobody has guarded, and native code reads them as it likes: through
`__index__`, `__float__`, `__str__`, `__fspath__`.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from dovetail.capture.process.trusted_code import HEAP_TYPE
from dovetail.capture.values.base import MISSING, NotNative, Session, Value
from dovetail.capture.values.callables import MethodValue
from dovetail.capture.values.containers import DictValue, SequenceValue, SliceValue
from dovetail.capture.values.objects import Lazy, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.ir.guard import GuardKind

UNCHANGING = (pathlib.PurePath,)  # by agreement, once made
GUARDED = (functools.partial,)  # in all their parts, when they are met


def native(s: Session, value: Value) -> Any:
    """The object itself, for native code to read; raises NotNative where the entry does not rely on what it holds."""
    found = value.native()
    _rely_on(s, value)
    return found


def _rely_on(s: Session, value: Any) -> None:
    for part in _parts(value):
        _rely_on(s, part)
    if type(value) is not ObjectValue or value.real is MISSING or isinstance(value.real, GUARDED):
        return
    if isinstance(value.real, UNCHANGING):
        if value.source is not None:
            s.guard(value.source, GuardKind.ID, value.real)
    elif value.cls.__flags__ & HEAP_TYPE:
        raise NotNative(value)


def _parts(value: Any) -> Any:
    """The values inside; what is still lazy has not got this far."""
    if isinstance(value, SequenceValue):
        return [v for v in value.items if type(v) is not Lazy]
    if isinstance(value, DictValue):
        return [part for pair in value.entries.values() for part in pair if type(part) is not Lazy]
    if isinstance(value, SetValue):
        return list(value.entries.values())
    if isinstance(value, SliceValue):
        return value.parts()
    if isinstance(value, MethodValue):
        return [value.receiver]
    return ()
