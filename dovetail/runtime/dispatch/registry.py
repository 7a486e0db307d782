"""All live dispatchers, and the stances that apply to them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from dovetail.runtime.dispatch.reentrancy import COMPILING
from dovetail.runtime.dispatch.stance import RUN_ONLY, Stance, Stances


class Registry:
    """Knows every dispatcher as long as it is in use."""

    def __init__(self) -> None:
        self.dispatchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.stances = Stances()

    @property
    def base(self) -> Stance:
        """The stance of threads that are in no block with another."""
        return self.stances.base

    def set_stance(self, stance: Stance) -> None:
        self._change(lambda: setattr(self.stances, "base", stance))

    def enter(self, stance: Stance) -> None:
        """The stance of the running thread until `leave`."""
        self._change(lambda: self.stances.enter(stance))

    def leave(self) -> None:
        self._change(self.stances.leave)

    def _change(self, change: Callable[[], None]) -> None:
        """Where compiled code may no longer be run without a look at the thread, or may again, say so everywhere."""
        before = self.stances.looked_at
        change()
        if self.stances.looked_at != before:
            with COMPILING:
                for dispatcher in list(self.dispatchers):
                    dispatcher.publish(dispatcher.entries)

    def reset(self) -> None:
        for dispatcher in list(self.dispatchers):
            dispatcher.reset()


REGISTRY = Registry()


def only_run(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `fn` while its thread compiles nothing."""

    def run(*args: Any, **kwargs: Any) -> Any:
        REGISTRY.enter(RUN_ONLY)
        try:
            return fn(*args, **kwargs)
        finally:
            REGISTRY.leave()

    return run
