"""Facts that were others in one call after another: plain Python looks at them, so that entries serve many calls."""

from __future__ import annotations

from typing import Any

from dovetail.capture.known.table import STANDINS
from dovetail.errors import Unsupported
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Source
from dovetail.ir.varying import fact

CODE = "changes-often"


def refuse_unstable(s: Any, source: Source | None, kind: GuardKind, payload: Any) -> None:
    """End the graph before the instruction that asks for such a fact, where the graph may end."""
    if not s.breaks or s.strict or not s.frames:
        return
    name = fact(source, kind, payload)
    if name in s.table.varying.unstable:
        raise Unsupported(
            CODE, f"the code depends on {name}, which was another in most calls", stack=s.stack(), places=_places(s)
        )


def _places(s: Any) -> tuple[tuple[int, bool], ...]:
    """Not inside what is traced for a native function: that is called as a whole."""
    native = {function.__code__ for function in STANDINS.values()}
    inside = next((k for k, frame in enumerate(s.frames) if frame.code.code in native), len(s.frames))
    return tuple(s.places()[:inside])
