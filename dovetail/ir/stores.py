"""What the process keeps between compilations: each store has a bound, and `empty` forgets all of it.

What is kept under a key follows from the key alone: to forget it costs time, never another result.
"""

from __future__ import annotations

import functools
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
