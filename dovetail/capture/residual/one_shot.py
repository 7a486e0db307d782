"""Regions that run once: what they put into a dictionary that they rely on keeps their entry from fitting again.

    state = self.state[p]
    if len(state) == 0:                    # relied on
        state["step"] = torch.tensor(0.0)  # no longer true after the call

The first step of an optimizer is such a region. Whoever empties the dictionary again makes the entry fit again.
"""

from __future__ import annotations

from dovetail.capture.values.base import MISSING, Session
from dovetail.capture.values.containers import DictValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Arg, Attr, Source, path


def is_one_shot(s: Session) -> bool:
    """Do the effects of this capture undo what its guards rely on?"""
    missed = {g.source for g in s.relied.guards if g.kind in ASKED and g.payload[1] is False}
    touched = (v for v in s.effects.touched.values() if isinstance(v, DictValue))
    changed = [v for v in touched if v.changed and v.real is not MISSING]
    return any(_kept(value.source) and _outgrown(value, missed) for value in changed)


ASKED = (GuardKind.HAS_KEY, GuardKind.CONTAINS)


def _outgrown(value: DictValue, missed: set[Source | None]) -> bool:
    if value.unread is not None:
        return value.source in missed
    return len(value.entries) > len(value.real)


def _kept(source: Source | None) -> bool:
    """Is it an object's or a module's own? A dictionary that the caller passes may be another one in each call."""
    parts = tuple(path(source))
    return any(isinstance(part, Attr) for part in parts) or not any(isinstance(part, Arg) for part in parts)
