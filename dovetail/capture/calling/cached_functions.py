"""Calls of functions that have a cache outside: they are inlined, as if every call were the first with its arguments.

That shows where such a function changes something, which the cache lets it do once, or where somebody changes what it
gave, which the next call gives again. There the graph ends before the call, and the cache itself is asked.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from dovetail.capture.tables.graph_functions import storage_of
from dovetail.capture.values.base import MISSING, Args, Const, Kwargs, Session, Value, serial
from dovetail.capture.values.containers import DictValue, SequenceValue, TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import Unsupported

#: Caches that have to be asked: what they gave was changed, or what is behind them changes something.
ASKED: weakref.WeakSet[Any] = weakref.WeakSet()


class Changes:
    """What changes meanwhile that was there before: a watcher of `Effects`."""

    def __init__(self) -> None:
        self.started, self.found = serial(), False

    def saw(self, value: Value | None, born: int) -> None:
        """A value was changed; `born` says when it was made."""
        self.found = self.found or value is not None and born < self.started


class CachedResults:
    """One result for each function and arguments.

    `makers`: by the identity of a value, or of a tensor's memory, the cache, and where the graph could end instead.
    """

    def __init__(self) -> None:
        self.results: dict[Any, Value] = {}
        self.makers: dict[int, tuple[Any, Any]] = {}

    def add(self, s: Session, key: Any, args: Args, result: Value, maker: tuple[Any, Any]) -> None:
        """Remember the function's result under the key of its arguments."""
        if not self.results:
            s.effects.watchers.append(self)
        self.results[key] = result
        s.objects.keep.append(args)
        self._mind(result, maker)

    def _mind(self, value: Any, maker: tuple[Any, Any]) -> None:
        if isinstance(value, TensorValue):
            if value.origin is None:
                self.makers.setdefault(storage_of(value.node), maker)
            return
        if getattr(value, "real", MISSING) is not MISSING or id(value) in self.makers:
            return
        if isinstance(value, (SequenceValue, DictValue, SetValue, ObjectValue)):
            self.makers[id(value)] = maker
        for part in _parts(value):
            self._mind(part, maker)

    def saw(self, value: Value | None, born: int) -> None:
        """A value was changed: what is in a result may not be."""
        if id(value) in self.makers:
            self._refuse(self.makers[id(value)])

    def wrote(self, fakes: list[torch.Tensor]) -> None:
        """An operation has written to these tensors."""
        for fake in fakes if self.results else ():
            if id(getattr(fake, "owner", fake)) in self.makers:
                self._refuse(self.makers[id(getattr(fake, "owner", fake))])

    def _refuse(self, maker: tuple[Any, Any]) -> None:
        cache, places = maker
        ASKED.add(cache)
        raise Unsupported("cache-state", "the code changes what a cached function gave", break_candidates=places)


def _parts(value: Any) -> list:
    if isinstance(value, SequenceValue):
        return list(value.items) if value.span is None else []
    if isinstance(value, DictValue):
        return [item for _, item in value.entries.values()] if value.unread is None else []
    return list(value.attrs.values()) if isinstance(value, ObjectValue) else []


def call_key(s: Session, cache: Any, args: Args, kwargs: Kwargs) -> Any:
    """Equal for calls that the cache takes for one. It relies on nothing, so not all such calls have equal ones."""
    return id(cache.real), id(s.graph), *map(_part, args), *((name, _part(v)) for name, v in kwargs.items())


def _part(value: Any) -> Any:
    if type(value) is Const:
        return type(value.value), value.value
    if isinstance(value, TupleValue) and value.span is None:
        return tuple(map(_part, value.items))
    return id(value)
