"""Changes to objects that the caller can see, replayed after the graph has run.

Only final states are replayed: between the graph call and the return no other code of this
thread runs, so the order of stores to one object is all that can be observed, and it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.capture.values.base import MISSING, Args, Kwargs, Value
from dovetail.errors import Location


class Effects:
    """`touched` lists changed values in the order of their first change. `stack` is given where they are not for a
    residual but to be told of, and says where the program is: `places` has where each value, or each attribute of it,
    was changed first, and `left_out` the names of calls that only show something."""

    def __init__(self, stack: Callable[[], tuple[Location, ...]] | None = None) -> None:
        self.stack, self.left_out = stack, dict[str, None]()
        self.places: dict[tuple[int, str], tuple[Location, ...]] = {}
        self.touched: dict[int, Value] = {}
        self.globals: dict[tuple[int, str], tuple[Any, Any]] = {}
        self.calls: list[tuple[Value, list[Value], dict[str, Value]]] = []
        self.watchers: list = []  # regions that must know of changes to what is outside of them

    def touch(self, value: Any) -> None:
        """Called at every change: `watchers` hear of each, `touched` remembers the first."""
        self.touched.setdefault(id(value), value)
        if self.stack is not None:
            written = getattr(value, "written", None)
            self._note(value, next(reversed(written), "") if isinstance(written, dict) else "")
        self.tell(value)

    def _note(self, value: Any, name: str) -> None:
        if self.stack is not None and (id(value), name) not in self.places:
            self.places[id(value), name] = self.stack()

    def place(self, value: Any, name: str = "") -> tuple[Location, ...]:
        """Where the program changed it first, or its attribute; empty where nobody asked for that."""
        return self.places.get((id(value), name), ())

    def tell(self, value: Any) -> None:
        """A change that nothing has to be replayed for."""
        for watcher in self.watchers:
            watcher.saw(value, value.born if value.real is MISSING else 0)

    def store_global(self, scope: Any, name: str, value: Any) -> None:
        """Note that the program stored a global."""
        self.globals[(id(scope), name)] = (scope, value)
        self._note(scope, name)
        self._watch()

    def call(self, function: Value, args: Args, kwargs: Kwargs, name: str = "") -> None:
        """A call whose result nobody uses (print, a log record), made after the graph. `name` is for the reader."""
        if self.stack is not None:
            self.left_out[name or function.describe()] = None
            return
        self.calls.append((function, args, kwargs))
        self._watch()

    def _watch(self) -> None:
        for watcher in self.watchers:
            watcher.saw(None, 0)
