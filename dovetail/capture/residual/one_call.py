"""Regions that run once: what they put into a dictionary that they rely on keeps their entry from fitting again.

    state = self.state[p]
    if len(state) == 0:                    # relied on
        state["step"] = torch.tensor(0.0)  # no longer true after the call

The first step of an optimizer is such a region. Whoever empties the dictionary again makes the entry fit again.
"""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import MISSING, Session
from dovetail.capture.values.containers import DictValue
from dovetail.ir.captured import MadeForOneCall
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Arg, Attr, Source, path

ASKED = (GuardKind.HAS_KEY, GuardKind.CONTAINS)


def is_one_shot(s: Session) -> bool:
    """Do the effects of this capture undo what its guards rely on?"""
    return any(_undoes(s, value) for value in s.effects.touched.values())


class FirstChange:
    """A watcher of effects: ends the capture with the first one that does so. What follows need not be traced."""

    def __init__(self, s: Session) -> None:
        self.s = s

    def saw(self, value: Any, born: int) -> None:
        if _undoes(self.s, value):
            raise MadeForOneCall


def _undoes(s: Session, value: Any) -> bool:
    if not isinstance(value, DictValue) or not value.changed or value.real is MISSING or not _kept(value.source):
        return False
    if value.unread is None:
        return len(value.entries) > len(value.real)
    return any(g.source == value.source for g in s.relied.guards if g.kind in ASKED and g.payload[1] is False)


def _kept(source: Source | None) -> bool:
    """Is it an object's or a module's own? A dictionary that the caller passes may be another one in each call."""
    parts = tuple(path(source))
    return any(isinstance(part, Attr) for part in parts) or not any(isinstance(part, Arg) for part in parts)
