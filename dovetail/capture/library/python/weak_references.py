"""Weak references: made here to what is surely alive, followed, compared, and looked up.

Two references without callbacks to one object are one reference, as in Python.
"""

from __future__ import annotations

import weakref

from dovetail.capture.outside.surely_alive import held
from dovetail.capture.outside.wrap import Called
from dovetail.capture.tables.known_callables import KNOWN, Handler, known
from dovetail.capture.values.base import MISSING, NOT_IMPLEMENTED, Args, Kwargs, Session, Value, boolean
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue


@known(weakref.ref)
def _made(s: Session, args: Args, kwargs: Kwargs) -> Value:
    target = args[0]
    inside = getattr(target, "real", MISSING) is MISSING
    plain = type(target) in (ObjectValue, TensorValue) and target.cls.__weakrefoffset__
    if inside and not plain or len(args) > 1:
        s.unsupported("weak-reference", f"a weak reference to {target.describe()} is made")
    made = s.objects.references.get(id(target))
    if made is None:
        made = s.objects.references[id(target)] = ObjectValue(weakref.ref)
        made.attrs["target"] = target
    return made


@known(weakref.ref.__call__)
def _dereference(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ObjectValue):
        target: Value = args[0].attrs["target"]
        if not held(s, target):
            s.unsupported("weak-reference", f"whether {target.describe()} is still alive cannot be told")
        return target
    reference = args[0].native()
    return s.wrap(reference(), Called(args[0].source or s.bind(reference), "()"))


def _comparison(sign: str) -> Handler:
    def compare(s: Session, args: Args, kwargs: Kwargs) -> Value:
        """Of two that are alive, what they refer to is compared."""
        left, right = args
        if not issubclass(right.cls, weakref.ref):
            return NOT_IMPLEMENTED
        targets = [_dereference(s, [reference], {}) for reference in args]
        if any(target.cls is type(None) for target in targets):
            return boolean(s.same(left, right) is (sign == "=="))
        return s.compare(sign, *targets)

    return compare


KNOWN[weakref.ref.__eq__], KNOWN[weakref.ref.__ne__] = _comparison("=="), _comparison("!=")
