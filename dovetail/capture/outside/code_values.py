"""What `hidden_effects` knows of the values that code has: made by it, found outside, or neither."""

from __future__ import annotations

from dataclasses import field
from types import FunctionType
from typing import Any

import torch

from dovetail.capture.process.trusted_code import trusted
from dovetail.ir.records import dataclass


class HasEffect(Exception):
    """The code does more than to give a result; the text says what."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Fresh by the code. `cls`: of this class, which is the program's; None: something else. `items`: of a tuple."""

    cls: type | None = None
    items: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """An object from outside."""

    real: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outside) and other.real is self.real

    def __hash__(self) -> int:
        return id(self.real)


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a value that is not known has under a name."""

    owner: Any
    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """A function of the program's with its first argument."""

    function: FunctionType
    first: Any


@dataclass(frozen=True, slots=True)
class Inner:
    """A function that the code makes, which is read where it is made, and what that gives."""

    result: Any


@dataclass(frozen=True, slots=True)
class Super:
    """`super()`: the classes of `start` behind `after`."""

    start: type
    after: type
    first: Any


OTHER = Attribute(None, "")
NULL = Attribute(None, "NULL")
REST = Attribute(None, "*")  # of arguments, which are not known
FRESH = Fresh()


@dataclass(slots=True)
class WhatCodeDoes:
    """`strict`: what cannot be told counts as an effect. Otherwise only what is seen to be one does.

    effect: what is done besides giving a result; None: nothing. functions: the program's that run. data: constants that
    are read: the class or the table of globals, the name, the value.
    """

    strict: bool
    effect: str | None = None
    functions: dict[FunctionType, None] = field(default_factory=dict)
    data: dict[tuple[int, str], tuple[Any, str, Any]] = field(default_factory=dict)
    attributes: dict[tuple[type, str], Any] = field(default_factory=dict)  # of what is made
    results: dict[Any, Any] = field(default_factory=dict)  # of functions that were entered, by their arguments

    def note(self, holder: Any, name: str, value: Any) -> None:
        if type(value) in PLAIN:
            self.data[id(holder), name] = holder, name, value


PLAIN = frozenset((bool, int, float, str, bytes, type(None), torch.dtype))


def users_function(function: FunctionType) -> FunctionType | None:
    """The program's function that this is, or that one of PyTorch's stands for (`functools.wraps`)."""
    wrapped: Any = function
    while isinstance(wrapped, FunctionType) and trusted(wrapped.__globals__.get("__name__")):
        wrapped = wrapped.__dict__.get("__wrapped__")
    return wrapped if isinstance(wrapped, FunctionType) else None


def joined(a: Any, b: Any) -> Any:
    if a == b:
        return a
    return FRESH if isinstance(a, Fresh) and isinstance(b, Fresh) else OTHER
