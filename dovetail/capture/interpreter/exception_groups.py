"""Exception groups: what `except*` takes out of one, and what is raised at the end."""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import Const, Session
from dovetail.capture.values.containers import SequenceValue, TupleValue
from dovetail.capture.values.objects import ExceptionValue


def members(s: Session, group: Any) -> list:
    """The exceptions in a group."""
    found = group.args[1]
    return list(found.all(s)) if isinstance(found, SequenceValue) else s.unpack(found)


def is_group(error: Any) -> bool:
    """Is the exception a group?"""
    return issubclass(error.cls, BaseExceptionGroup)


def derived(group: Any, inside: list) -> Any:
    """A part of a group: other members, the same message and links."""
    made = ExceptionValue(group.cls, [group.args[0], TupleValue(inside)])
    made.cause, made.context, made.suppress = group.cause, group.context, group.suppress
    made.origin = group.origin or group
    return made


def split(s: Session, error: Any, wanted: Any) -> tuple[Any, Any]:
    """(what `wanted` chooses, the rest) of an exception or a group; None where nothing is left."""
    if wanted(error):
        return error, None
    if not is_group(error):
        return None, error
    pairs = [split(s, member, wanted) for member in members(s, error)]
    yes, no = ([p[k] for p in pairs if p[k] is not None] for k in (0, 1))
    return derived(error, yes) if yes else None, derived(error, no) if no else None


def match_group(s: Session, error: Any, classes: Any) -> tuple[Any, Any]:
    """`except* classes`: (match, rest)."""
    match, rest = split(s, error, lambda e: issubclass(e.cls, classes))
    if match is error and not is_group(error):
        cls = ExceptionGroup if issubclass(error.cls, Exception) else BaseExceptionGroup
        match = ExceptionValue(cls, [Const(""), TupleValue([error])])
    return match, rest


def leaves(s: Session, error: Any) -> list:
    """The exceptions in a group and in the groups inside it."""
    return [leaf for m in members(s, error) for leaf in leaves(s, m)] if is_group(error) else [error]


def to_raise(s: Session, original: Any, raised: list) -> Any:
    """What a try statement with `except*` raises at its end; None for nothing."""
    found = [e for e in raised if not (isinstance(e, Const) and e.value is None)]
    if not found or not is_group(original):
        return found[0] if found else None
    again = [e for e in found if e is original or e.origin is (original.origin or original)]
    new = [e for e in found if e not in again]
    kept = {id(leaf) for e in again for leaf in leaves(s, e)}
    projection = split(s, original, lambda e: not is_group(e) and id(e) in kept)[0] if again else None
    if again and len(kept) == len(leaves(s, original)):
        projection = original
    new += [projection] if projection is not None else []
    if len(new) == 1:
        return new[0]
    cls = ExceptionGroup if all(issubclass(e.cls, Exception) for e in new) else BaseExceptionGroup
    return ExceptionValue(cls, [Const(""), TupleValue(new)])
