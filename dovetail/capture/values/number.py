"""The root of all numbers that the graph or the residual computes: their values are no constants.

An operation on several of them goes by the rules of the one that stands highest in `Precedence`.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from dovetail.capture.values.base import Args, Session, Value
from dovetail.ir.dims import Dim


class Precedence(enum.IntEnum):
    """Whose rules an operation on several numbers goes by. Each knows those below it, or has no rule for them."""

    INPUT = 0  # loaded or computed by the residual
    SIZE = 1  # made of sizes of inputs
    GRAPH = 2  # taken from a tensor by the graph
    UNBACKED = 3  # a size that the graph finds out
    TENSOR = 4  # held by a 0-d tensor of the graph
    NUMPY = 5  # one of NumPy's, made of the others


class SymbolicNumber(Value):
    """A number, or a text made of one, that the entry relies on as little as possible.

    The operations have one result in common: None says that there is no rule, so that only a constant will do.
    """

    __slots__ = ()
    precedence: ClassVar[Precedence]

    @property
    def open(self) -> bool:
        """Is it still no constant?"""
        return True

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        """`left op right`, of which it is one."""
        return None

    def unary(self, s: Session, name: str) -> Value | None:
        return None

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        """`left sign right`, of which it is one."""
        return None

    def truth(self, s: Session) -> bool | None:
        return None

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        """`function(*args)` for a native function; it is one of the arguments."""
        return None

    def total(self, s: Session, values: list[Value], start: Value) -> Value | None:
        """`sum(values, start)`, of which it is one."""
        return None

    def as_dim(self, s: Session) -> Dim | None:
        """What it is in terms of sizes."""
        return None

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        """The graph's argument for it, and the fake's. `numbers`: may the operation take a number that varies here?"""
        return None


def answering(*values: Any) -> SymbolicNumber | None:
    """The one by whose rules an operation on the values goes; None where all are constants, or no numbers."""
    found = None
    for value in values:
        if isinstance(value, SymbolicNumber) and value.open:
            found = value if found is None or value.precedence > found.precedence else found
    return found
