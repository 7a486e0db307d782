"""What an entry must not keep alive: the modules and optimizers that its callers pass in or name.

An entry that was compiled for one module, known by its identity, is of no use once nobody else has that module. So
it holds the module weakly, and what hangs below it strongly. When the module dies, the entry can go.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from dovetail.guards.slots import anchored
from dovetail.ir.captured import Captured
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.literals import in_words


class Weak(weakref.ref[Any]):
    """The payload of an ID guard whose object is held weakly; a call gives the object, or None."""

    __slots__ = ()

    def __repr__(self) -> str:
        return in_words(self())


class Held:
    """`K`: the objects behind Bound sources. Reading a dead one raises ReferenceError, as a guard a miss."""

    def __init__(self, objects: tuple, weak: dict[int, Weak]) -> None:
        self._objects = tuple(weak.get(id(obj), obj) for obj in objects)
        self.weak = tuple(weak.values())

    def __getitem__(self, index: int) -> Any:
        found = self._objects[index]
        if type(found) is not Weak:
            return found
        alive = found()
        if alive is None:
            raise ReferenceError("the module that this entry was compiled for is gone")
        return alive

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self._objects)))

    def __len__(self) -> int:
        return len(self._objects)

    def weakly(self, obj: Any) -> bool:
        """Whether `obj` is held weakly."""
        return any(ref() is obj for ref in self.weak)


def let_go(captured: Captured) -> Captured:
    """The same region with modules that are known by their identity held weakly; its `bound` is a `Held`. What other
    processes would be asked is not needed any more."""
    weak = {id(g.payload): Weak(g.payload) for g in captured.guards if _identifies_module(g)}
    guards = tuple(
        dataclasses.replace(g, payload=weak[id(g.payload)]) if _identifies_module(g) else g for g in captured.guards
    )
    held: Any = Held(captured.bound, weak)
    return dataclasses.replace(captured, guards=guards, bound=held, asked=())


def _identifies_module(guard: Guard) -> bool:
    return guard.kind is GuardKind.ID and isinstance(guard.payload, _ROOTS) and not anchored(guard.source)


_ROOTS = (torch.nn.Module, torch.optim.Optimizer)
