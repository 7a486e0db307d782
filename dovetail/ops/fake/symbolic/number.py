"""Numbers that vary, as PyTorch's dispatcher passes them along: symbolic, but with a value to infer shapes by.

PyTorch hands a `SymFloat` or `SymInt` from its Python functions to the operators below without looking at it. Whoever
does look asks its node for the value, and gets `NumberNeeded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.errors import Unsupported


class NumberNeeded(Unsupported):
    """An operator depends on the value of a number that varies."""


def always(answer: Any) -> Callable[[Any], Any]:
    """A question to a node that has one answer."""
    return lambda self: answer


class SymbolicNode:
    """What all symbolic values answer alike."""

    __slots__ = ()
    is_bool = is_nested_int = always(False)
    is_symbolic = always(True)
    maybe_as_int = constant_int = always(None)

    def __getattr__(self, name: str) -> Any:
        """Every other question is about the value."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise needed()


class NumberNode(SymbolicNode):
    """What a SymFloat or SymInt of ours points to: `hint` is the number's value in the call that is compiled."""

    __slots__ = ("hint", "place")

    def __init__(self, hint: Any, place: Any) -> None:
        self.hint, self.place = hint, place

    has_hint = always(False)

    def is_int(self) -> bool:
        return type(self.hint) is int

    def is_float(self) -> bool:
        return type(self.hint) is float


def needed() -> NumberNeeded:
    """The error of code that asks a symbolic number for its value."""
    return NumberNeeded("number-needed", "an operation depends on the value of a number that changes between calls")


def symbolic(hint: Any, place: Any) -> Any:
    """A number for PyTorch's functions; `place` says what it stands for."""
    return (torch.SymInt if type(hint) is int else torch.SymFloat)(NumberNode(hint, place))


SYMBOLIC = (torch.SymFloat, torch.SymInt)


#: What C++ code asks of a tensor when it does not know symbolic sizes.
PLAIN = frozenset(("aten::size", "aten::stride", "aten::storage_offset", "aten::numel"))


def place_of(value: Any) -> Any:
    """What a symbolic number stands for."""
    return value.node.place
