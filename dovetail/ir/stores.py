"""What the process keeps between compilations: each store has a bound, and `empty` forgets all of it.

What is kept under a key follows from the key alone: to forget it costs time, never another result.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_EMPTIED: list[Callable[[], None]] = []
F = TypeVar("F", bound=Callable[..., Any])


def emptied_by(forget: Callable[[], None]) -> None:
    """`forget` is called by `empty`."""
    _EMPTIED.append(forget)


def empty() -> None:
    """Forget all that is kept between compilations."""
    for forget in _EMPTIED:
        forget()


def remembered(most: int) -> Callable[[F], F]:
    """A decorator: the function's newest results, `most` of them, each under its arguments."""

    def decorate(function: F) -> F:
        kept = functools.lru_cache(maxsize=most)(function)
        emptied_by(kept.cache_clear)
        return kept  # type: ignore[return-value]

    return decorate


class Store(dict[Any, Any]):
    """The newest values, `most` of them, each under its key; `recall` makes one new again.

    The lock is re-entrant: the collector may run anybody's code meanwhile.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.lock = most, threading.RLock()
        emptied_by(self.clear)

    def recall(self, key: Any) -> Any:
        """The value, or None."""
        found = self.get(key)
        if found is not None:
            self.keep(key, found)
        return found

    def keep(self, key: Any, value: Any) -> Any:
        """Put the value under the key as the newest one, and drop the oldest beyond the bound."""
        with self.lock:
            self.pop(key, None)
            self[key] = value
            while len(self) > self.most:
                del self[next(iter(self))]
        return value


#: Nodes in a table before it is first trimmed: about a hundred megabytes.
LEAST = 200_000


class InternTable(dict[Any, Any]):
    """Hash-consed nodes by their keys. `lock` is held while a node is added; looking one up needs no lock.

    A node in use must stay, or an equal one would become a second object. So the table is trimmed by looking: a node
    that only the table refers to goes. Newest first, since a node refers to older ones.
    `caches` are functions that empty caches which refer to nodes.
    """

    def __init__(self, caches: tuple[Callable[[], None], ...] = ()) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.caches = list(caches)
        self.limit = LEAST
        emptied_by(self.forget)

    def forget(self) -> None:
        """Trim now."""
        with self.lock:
            self.trim()

    def add(self, key: Any, make: Callable[[], Any]) -> Any:
        """The node for `key`, made now unless another thread was faster."""
        with self.lock:
            found = self.get(key)
            if found is None:
                if len(self) >= self.limit:
                    self.trim()
                found = self.setdefault(key, make())  # the same thread may have made one since, in a finalizer
            return found

    def trim(self) -> None:
        """Drop nodes that nothing else refers to. The caller holds the lock."""
        for clear in self.caches:
            clear()
        keys = list(self)
        while keys:  # a key refers to nodes too, so none is kept longer than needed
            key = keys.pop()
            node = self.pop(key)
            # `node` and getrefcount's argument are two references. Whoever took the node from the table before it
            # was popped holds a third; whoever looks after that waits for the lock.
            if sys.getrefcount(node) > 2:
                self[key] = node
        self.limit = max(LEAST, 2 * len(self))
