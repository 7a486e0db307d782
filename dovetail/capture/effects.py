"""Changes to objects that the caller can see, replayed after the graph has run.

Only final states are replayed: between the graph call and the return no other code of this
thread runs, so the order of stores to one object is all that can be observed, and it is kept.
"""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import MISSING, Value


class Effects:
    """`touched` lists changed values in the order of their first change. `shows`: are calls that only show something
    made? Otherwise `left_out` has their names."""

    def __init__(self, shows: bool = True) -> None:
        self.shows, self.left_out = shows, dict[str, None]()
        self.touched: dict[int, Value] = {}
        self.globals: dict[tuple[int, str], tuple[Any, Any]] = {}
        self.calls: list[tuple[Value, list[Value], dict[str, Value]]] = []
        self.watchers: list[Any] = []  # regions that must know of changes to what is outside of them

    def touch(self, value: Any) -> None:
        """Called at every change: `watchers` hear of each, `touched` remembers the first."""
        self.touched.setdefault(id(value), value)
        self.tell(value)

    def tell(self, value: Any) -> None:
        """A change that nothing has to be replayed for."""
        for watcher in self.watchers:
            watcher.saw(value, value.born if value.real is MISSING else 0)

    def store_global(self, scope: Any, name: str, value: Any) -> None:
        self.globals[(id(scope), name)] = (scope, value)
        self._watch()

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], name: str = "") -> None:
        """A call whose result nobody uses (print, a log record), made after the graph. `name` is for the reader."""
        if not self.shows:
            self.left_out[name or function.describe()] = None
            return
        self.calls.append((function, args, kwargs))
        self._watch()

    def _watch(self) -> None:
        for watcher in self.watchers:
            watcher.saw(None, 0)
