"""The graph breaks of this process: each distinct one is reported once, later ones are counted."""

from __future__ import annotations

import threading
from typing import Any

from dovetail.diagnostics import logs
from dovetail.errors import Location
from dovetail.ir.callers import users_place
from dovetail.ir.records import dataclass


@dataclass
class Seen:
    """One distinct break, the program's own line of it, and how often it was met while compiling."""

    code: str
    reason: str
    place: Location | None
    count: int = 1

    def line(self) -> str:
        where = f"{self.place.filename}:{self.place.line} in {self.place.function}" if self.place else "unknown place"
        return f"{self.count:5}x  [{self.code}] {self.reason}, {where}"


class BreakLog:
    """What was reported so far."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen: dict[Any, Seen] = {}

    def meet(self, code: str, reason: str, stack: tuple[Location, ...], message: str) -> bool:
        """Report a break with its whole message, or count one that was reported. Is it a new one?"""
        key = (code, reason, tuple((p.filename, p.line, p.column) for p in stack))
        with self._lock:
            found = self._seen.get(key)
            if found is None:
                self._seen[key] = Seen(code, reason, users_place(stack))
            else:
                found.count += 1
        if found is None:
            logs.log("graph_breaks", message)
        else:
            logs.detail("graph_breaks", f"the same graph break again: {found.line().strip()}")
        return found is None

    def all(self) -> list[Seen]:
        """The most frequent first."""
        with self._lock:
            return sorted(self._seen.values(), key=lambda seen: -seen.count)

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()

    def summary(self) -> str:
        return "\n".join(["graph breaks, and how often each was met while compiling:", *(s.line() for s in self.all())])


BREAKS = BreakLog()


def at_exit() -> None:
    """One table at the end of a program that asked for the log."""
    found = BREAKS.all()
    if logs.is_on("graph_breaks") and any(seen.count > 1 for seen in found):
        place = found[0].place
        logs.log("graph_breaks", BREAKS.summary(), f"{place.filename}:{place.line}" if place else "")
