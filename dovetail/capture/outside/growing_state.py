"""State that grows: a tensor that an object keeps, in whose place the program leaves one of another size.

    self.keys = torch.cat([self.keys, new], dim=2)  # a cache of keys and values

The next call is bound to find another size there than this one did. So it becomes a symbol at once, in all objects of
the class, instead of after a compilation that fits one call: capture starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

import torch

from dovetail.capture.values.base import MISSING, RestartCapture, Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.records import dataclass
from dovetail.ir.sizesource import size_of
from dovetail.ir.source import Source

Size = tuple[type, str, int]  # the class of an object, the name of its attribute, a dimension


class StateGrows(RestartCapture):
    """These sizes were found to grow."""

    def __init__(self, found: frozenset[Size]) -> None:
        self.found = found


@dataclass
class Growing:
    """`known`: what grows, as earlier attempts have found. `stored`: what a running function has put elsewhere."""

    known: frozenset[Size] = frozenset()
    stored: dict[tuple[int, str], tuple[Any, TensorValue]] = field(default_factory=dict)

    def meet(self, s: Session, cls: type, name: str, source: Source | None) -> None:
        """An attribute is read for the first time."""
        if source is None:
            return
        names = {size_of(source, k).name() for owner, attribute, k in self.known if (owner, attribute) == (cls, name)}
        if names:
            s.table.varying = replace(s.table.varying, names=s.table.varying.names | names)


def note(s: Session, owner: Value, name: str, new: Value) -> None:
    """Before an attribute is stored: what does it replace? Only an object from outside is met again."""
    if s.options.dynamic is not None or getattr(owner, "real", MISSING) is MISSING or not isinstance(new, TensorValue):
        return
    old = getattr(owner, "attrs", {}).get(name)
    if isinstance(old, TensorValue) and old.source is not None and old.source == s.own_source(owner, name):
        s.growing.stored.setdefault((id(owner), name), (owner, old))


def check(s: Session) -> None:
    """When a function returns: has what it stored other sizes in the end? Raises StateGrows."""
    stored, s.growing.stored = s.growing.stored, {}
    found = {
        (owner.cls, name, k)
        for (_, name), (owner, old) in stored.items()
        for k in _changed(old.fake, owner.attrs.get(name))
    }
    if not found <= s.growing.known and not s.options.standalone:
        raise StateGrows(frozenset(found))


def _changed(old: torch.Tensor, new: Any) -> Iterator[int]:
    """Dimensions whose sizes differ. What has been a symbol, or is 0 or 1, may mean something else."""
    if isinstance(new, TensorValue) and old.dim() == new.fake.dim():
        for k, sizes in enumerate(zip(old.shape, new.fake.shape, strict=True)):
            if all(type(size) is int and size > 1 for size in sizes) and sizes[0] != sizes[1]:
                yield k
