"""Stances: what calls of compiled functions do. One for the process, and what each thread is inside of."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple


class Stance(NamedTuple):
    """`backend`: with "default" alone, what graphs are given to in place of each function's own backend."""

    name: str = "default"
    backend: Any = None

    @property
    def looked_at(self) -> bool:
        """Must a call look at its thread's stance before it runs compiled code?"""
        return self.name == "force_eager" or self.backend is not None


#: The first call is run in this way instead of being compiled.
PUT_OFF = {"eager_then_compile": None, "aot_eager_then_compile": "aot_eager"}
FORBIDDING = ("eager_on_recompile", "fail_on_recompile")
STANCES = ("default", "force_eager", *FORBIDDING, *PUT_OFF)
DEFAULT, FORCE_EAGER = Stance(), Stance("force_eager")
RUN_ONLY = Stance("run_only")  # what `dovetail.run` puts a thread in: never compile


class _Inside(threading.local):
    def __init__(self) -> None:
        self.stack: list[Stance] = []


class Stances:
    """`looked_at`: may some thread refuse to run compiled code? Then every call looks at its own thread's stance."""

    def __init__(self) -> None:
        self.base = DEFAULT
        self.inside = _Inside()
        self.lock = threading.RLock()
        self.looking = 0

    def now(self) -> Stance:
        stack = self.inside.stack
        return stack[-1] if stack else self.base

    @property
    def looked_at(self) -> bool:
        return self.base.looked_at or self.looking > 0

    def enter(self, stance: Stance) -> None:
        """Of the running thread, until `leave`."""
        self.inside.stack.append(stance)
        with self.lock:
            self.looking += stance.looked_at

    def leave(self) -> None:
        stance = self.inside.stack.pop()
        with self.lock:
            self.looking -= stance.looked_at
