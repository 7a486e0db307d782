"""Stances: what calls of compiled functions do. One for the process, and what each thread is inside of."""

from __future__ import annotations

import threading

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
RUN_ONLY = "run_only"  # what `dovetail.run` puts a thread in: never compile


class _Inside(threading.local):
    def __init__(self) -> None:
        self.stack: list[str] = []


class Stances:
    """`maybe_eager`: may some thread refuse to run compiled code? Then every call looks at its own thread's stance."""

    def __init__(self) -> None:
        self.base = "default"
        self.inside = _Inside()
        self.lock = threading.RLock()
        self.eager_threads = 0

    def now(self) -> str:
        stack = self.inside.stack
        return stack[-1] if stack else self.base

    @property
    def maybe_eager(self) -> bool:
        return self.base == "force_eager" or self.eager_threads > 0

    def enter(self, stance: str) -> None:
        """Of the running thread, until `leave`."""
        self.inside.stack.append(stance)
        with self.lock:
            self.eager_threads += stance == "force_eager"

    def leave(self) -> None:
        stance = self.inside.stack.pop()
        with self.lock:
            self.eager_threads -= stance == "force_eager"
