"""Single entries of dictionaries from outside.

What the program asks for is guarded; the order and number of the keys only where it looks at the whole, so that a
registry may grow. A tensor, as in an optimizer's state, is a key by its identity, so an entry is found by the path to
the tensor: `state.get(group["params"][3])`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import torch

from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.capture.values.objects import Lazy
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Keyed, Source

#: Types whose `get` is a dictionary's own.
KEYED = (dict, OrderedDict, defaultdict)


def plainly_read(s: Session, cls: type) -> bool:
    """Do `in` and `[]` do what a dictionary's do?"""
    own = s.static(cls, "__contains__") is dict.__contains__ and s.static(cls, "__getitem__") is dict.__getitem__
    return cls in KEYED or own and s.static(cls, "__missing__") is MISSING


def by_tensors(obj: Any) -> bool:
    """Are there tensors among the keys?"""
    return any(isinstance(key, torch.Tensor) for key in obj)


@dataclass(frozen=True, slots=True)
class KeyAt(Source):
    """The key of `base` at a place in its order."""

    base: Source
    place: int

    def expr(self) -> str:
        return f"[*{self.base.expr()}][{self.place}]"

    def name(self) -> str:
        return f"the key {self.place} of {self.base.name()}"


def look_up(s: Session, obj: Any, source: Source, key: Any) -> tuple[Value, Any] | None:
    """The entry outside under the native key, a tensor or a literal; None if there is none."""
    if not isinstance(key, TensorValue):
        present = key in obj
        s.guard(source, GuardKind.CONTAINS, (key, present))
        return (s.wrap(key, None), Lazy(obj[key], source.item(key))) if present else None
    if key.origin is None or key.source is None:
        return None
    present = key.origin in obj
    s.guard(source, GuardKind.HAS_KEY, (key.source, present))
    return (key, Lazy(obj[key.origin], Keyed(source, key.source))) if present else None


def read_keyed(s: Session, obj: Any, keys: tuple[Any, ...], source: Source) -> dict[Any, tuple[Value, Any]]:
    """The whole dictionary."""
    s.guard(source, GuardKind.LENGTH, len(keys))
    entries: dict[Any, tuple[Value, Any]] = {}
    for place, key in enumerate(keys):
        known = s.wrap(key, KeyAt(source, place))
        own = known if isinstance(key, torch.Tensor) else s.hashable(known)
        entries[own] = (known, Lazy(obj[key], Keyed(source, known.source or KeyAt(source, place))))
    return entries
