"""Facts that were others in one call after another: plain Python looks at them, so that entries serve many calls."""

from __future__ import annotations

from dovetail.capture.tables.known_callables import STANDINS
from dovetail.capture.values.base import Session
from dovetail.errors import Unsupported
from dovetail.ir.guard import Guard
from dovetail.ir.varying import facts

CODE = "changes-often"


def refuse_unstable(s: Session, guard: Guard) -> None:
    """End the graph before the instruction that asks for such a fact, where the graph may end."""
    if not s.ends.breaks or s.ends.strict or not s.frames:
        return
    names = facts(guard)
    if not s.table.varying.unstable.isdisjoint(names):
        raise Unsupported(
            CODE, f"the code depends on {names[0]}, which was another in most calls", stack=s.stack(),
            break_candidates=_candidates(s),
        )  # fmt: skip


def _candidates(s: Session) -> tuple[tuple[int, bool], ...]:
    """Not inside what is traced for a native function: that is called as a whole."""
    native = {function.__code__ for function in STANDINS.values()}
    inside = next((k for k, frame in enumerate(s.frames) if frame.code.code in native), len(s.frames))
    return tuple(s.break_candidates()[:inside])
