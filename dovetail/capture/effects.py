"""Changes to objects that the caller can see, replayed after the graph has run.

Only final states are replayed: between the graph call and the return no other code of this
thread runs, so the order of stores to one object is all that can be observed, and it is kept.
"""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import Value


class Effects:
    """`touched` lists changed values in the order of their first change."""

    def __init__(self) -> None:
        self.touched: dict[int, Value] = {}
        self.globals: dict[tuple[int, str], tuple[Any, Any]] = {}
        self.calls: list[tuple[Value, list[Value], dict[str, Value]]] = []

    def touch(self, value: Value) -> None:
        self.touched.setdefault(id(value), value)

    def store_global(self, scope: Any, name: str, value: Any) -> None:
        self.globals[(id(scope), name)] = (scope, value)

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
        """A call whose result nobody uses (print, a log record), made after the graph."""
        self.calls.append((function, args, kwargs))
