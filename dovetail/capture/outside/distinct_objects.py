"""Objects from outside that the traced code took to be different ones.

One object reached by two paths is one value, and the second path must keep leading to it (`wrap`). Two objects must
stay two where it matters: one of them was changed, so that reading the other may not show it, or the code asked.
"""

from __future__ import annotations

from collections import defaultdict
from types import NoneType
from typing import Any

from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.capture.values.containers import SliceValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Bound, Computed


def rely_on_difference(s: Session, left: Value, right: Value) -> None:
    """`left is not right`, so it was seen."""
    if _could_be_one(left, right):
        s.guard(left.source, GuardKind.DISTINCT, (right.source,))


def same_number(s: Session, left: Any, right: Any) -> bool:
    """`left is right` of floats and the like: equal ones, and two that are no numbers, may be one object in one call.
    """
    one = left.value is right.value
    if one or left.value == right.value or left.value != left.value and right.value != right.value:
        rely_on_identity(s, left, right, one)
    return one


def same_varying(s: Session, left: Any, right: Any) -> bool:
    """The same of floats that are not equal, of which one varies: it may be no number in another call."""
    first, second = (getattr(v, "real", getattr(v, "value", MISSING)) for v in (left, right))
    one = first is second is not MISSING
    rely_on_identity(s, left, right, one)
    return one


def rely_on_identity(s: Session, left: Any, right: Any, one: bool) -> None:
    """Rely on the two being one object, or two, as in this call."""
    found = sorted((left.source, right.source), key=lambda source: source is None or isinstance(source, Bound))
    if isinstance(found[0], Computed | Bound | NoneType) or isinstance(found[1], Computed):
        return  # what is computed is new in every call
    if found[1] is not None:
        s.guard(found[0], GuardKind.ALIAS if one else GuardKind.DISTINCT, found[1] if one else (found[1],))
    elif one:
        s.guard(found[0], GuardKind.ID, left.value)


def rely_on_separate_changes(s: Session) -> None:
    """What was changed is none of the other objects of its kind that the code looked at.

    A guard keeps all that it names apart from each other, so one is enough for objects that it has all of.
    """
    alike: dict[type, list[ObjectValue]] = defaultdict(list)
    for v in s.objects.by_identity.values():
        if isinstance(v, ObjectValue) and v.source is not None and v.real is not MISSING:
            alike[type(v.real)].append(v)
    apart: dict[type, set[Any]] = defaultdict(set)
    done: set[int] = set()
    for value in [v for v in s.effects.touched.values() if isinstance(v, ObjectValue)]:
        done.add(id(value))
        kind = type(value.real)
        if apart[kind] and apart[kind].issuperset(v.source for v in (value, *alike[kind])):
            continue
        others = {v.source: None for v in alike[kind] if id(v) not in done and _could_be_one(value, v)}
        if others:
            s.guard(value.source, GuardKind.DISTINCT, tuple(others))
            apart[kind] = apart[kind] if len(apart[kind]) > len(others) else {value.source, *others}


def rely_on_separate_keys(s: Session) -> None:
    """Objects that were keys by their identity are as many objects in every call. Tensors: see `keyed_tensors`."""
    rely_on_number(s, [value for value in s.objects.keys.values() if not isinstance(value, TensorValue)])


def rely_on_number(s: Session, objects: list) -> None:
    """They are as many objects in every call."""
    alike: dict[type, list] = defaultdict(list)
    for value in objects:
        alike[type(value.real)].append(value)
    for values in alike.values():
        first, *others = sorted(values, key=lambda v: isinstance(v.source, Bound))
        if others and not isinstance(first.source, Bound):
            s.guard(first.source, GuardKind.DISTINCT, tuple(v.source for v in others))


def keyed_tensors(s: Session) -> list:
    """The paths to the tensors that were keys."""
    return [v.source for v in s.objects.keys.values() if isinstance(v, TensorValue) and not isinstance(v.source, Bound)]


def _could_be_one(left: Any, right: Any) -> bool:
    """May the two sources lead to one object in another call? Bound ones are known for good."""
    if left is right or left.source is None or right.source is None:
        return False
    if isinstance(left.source, Bound) and isinstance(right.source, Bound):
        return False
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return isinstance(left, TensorValue) and isinstance(right, TensorValue)
    kind = SliceValue if isinstance(left, SliceValue) else ObjectValue
    if not isinstance(left, kind) or not isinstance(right, kind):
        return False
    return left.real is not MISSING and right.real is not MISSING and type(left.real) is type(right.real)
