"""`obj.__dict__` of a symbolic object: a live view of its attributes."""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import Const, Value
from dovetail.capture.values.objects import ObjectValue


class NamespaceValue(Value):
    """`base.__dict__`; reads and writes go to the object itself."""

    __slots__ = ("base",)
    cls = dict

    def __init__(self, base: ObjectValue) -> None:
        super().__init__()
        self.base = base

    def pairs(self, s: Any) -> list[tuple[Value, Value]]:
        out = []
        for name in self.base.attr_names(s):
            value = self.base.instance_attr(s, name)
            if value is not None:
                out.append((Const(name), value))
        return out
