"""`obj.__dict__` of a symbolic object: a live view of its attributes."""

from __future__ import annotations

from dovetail.capture.values.base import MISSING, Const, Session, Value
from dovetail.capture.values.objects import ObjectValue, real_dict
from dovetail.ir.guard import GuardKind


class NamespaceValue(Value):
    """`base.__dict__`; reads and writes go to the object itself."""

    __slots__ = ("base",)
    cls = dict

    def __init__(self, base: ObjectValue) -> None:
        super().__init__()
        self.base = base

    def get(self, s: Session, name: str) -> Value | None:
        """The attribute; the entry relies on there being none."""
        found = self.base.instance_attr(s, name)
        base = self.base
        if found is None and base.source is not None and base.real is not MISSING and name not in real_dict(base.real):
            s.guard(base.own_dict(), GuardKind.CONTAINS, (name, False))
        return found

    def pairs(self, s: Session) -> list[tuple[Value, Value]]:
        out: list[tuple[Value, Value]] = []
        for name in self.base.attr_names(s):
            value = self.base.instance_attr(s, name)
            if value is not None:
                out.append((Const(name), value))
        return out
