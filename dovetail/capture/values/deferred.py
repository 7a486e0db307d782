"""What exists only after the graph has run: tensors kept as they are now, and text made of them."""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import Const, Session, Value


class Snapshot(Value):
    """A tensor as it is now; rebuilt from a copy if the graph changes anything later.

    `after` is the last node so far, `break_candidates` where the graph could end instead.
    """

    __slots__ = ("tensor", "node", "after", "break_candidates")

    def __init__(self, s: Session, tensor: Any) -> None:
        super().__init__()
        self.tensor, self.node, self.after = tensor, tensor.node, next(iter(reversed(s.graph.nodes)))
        self.break_candidates = s.break_candidates()

    @property
    def cls(self) -> type:  # type: ignore[override]
        return self.tensor.cls


class DeferredText(Value):
    """A string with parts that tensors give; a part is a Const or (function, Snapshot, format spec)."""

    __slots__ = ("s", "parts")
    cls = str

    def __init__(self, s: Session, parts: list) -> None:
        super().__init__()
        self.s, self.parts = s, parts

    def native(self) -> Any:
        return self.s.unsupported("text-of-tensor", "the text of a tensor is needed while capturing")

    key = native

    def get_attr(self, s: Session, name: str) -> Value:
        return self.native()


def joined(s: Session, parts: list[Value]) -> Value:
    """The concatenation of strings."""
    if all(isinstance(p, Const) for p in parts):
        return Const("".join(p.native() for p in parts))
    flat: list = []
    for part in parts:
        flat += part.parts if isinstance(part, DeferredText) else [part]
    return DeferredText(s, flat)
