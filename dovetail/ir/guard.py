"""What must stay true for a compiled entry to be used again.

A Guard is data: a source, a kind and a payload. `guards/` turns a list of them into one
generated function and can say, for a miss, which one failed. `user_line` is the user's
`file:line` that made capture depend on the fact.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from dovetail.ir.records import dataclass
from dovetail.ir.source import Source


class GuardKind(Enum):
    """payload of each kind:"""

    TYPE = "type(v) is payload"
    ID = "v is payload"
    EQUAL = "type(v) is type(payload) and v == payload, NaN and -0.0 told apart"
    TENSOR = "a TensorFacts"
    LENGTH = "len(v) == payload"
    KEYS = "tuple(v) == payload, for a dict or a set of constants"
    HAS_ATTR = "hasattr(v, payload[0]) is payload[1]"
    CONTAINS = "(payload[0] in v) is payload[1]"
    HAS_KEY = "(payload[0] in v) is payload[1]; payload[0] is another source"
    STATE = "the named process-wide state (payload[0]) equals payload[1]"
    ALIAS = "v is payload.value, another source: two arguments are the same object"
    DISTINCT = "v and the sources in payload are all different objects"
    DEFINITION = "a function whose __code__, __defaults__ and __kwdefaults__ are the payload's"
    CLASS_DICT = "a class whose own dictionary has payload[1] under payload[0]; ABSENT: nothing"
    OWN_LACKS = "an object whose own dictionary has no key payload"
    SIZE = "a Computed condition on sizes and numbers; v is what the first of them is read from"

    __hash__ = object.__hash__  # of a member, which is one of its kind: an Enum's own hashes the name in Python


@dataclass(frozen=True, slots=True)
class Follows:
    """A stride: the product of size and stride of the dimension `inner`."""

    inner: int


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Everything about an input tensor that capture relied on. `contiguous` says all about the strides."""

    cls: type
    dtype: Any
    device: Any
    sizes: tuple  # int, None where any size will do, or the Source of a size that it equals
    strides: tuple  # int, None or Follows
    offset: int | None
    requires_grad: bool
    dispatch_keys: Any
    layout: Any
    contiguous: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    source: Source | None  # None: STATE
    kind: GuardKind
    payload: Any
    user_line: str = ""


class Sentinel:
    """A value that is never a user's."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


ABSENT = Sentinel("ABSENT")  # no such entry
MISS = Sentinel("MISS")  # the one value that a compiled entry returns when a guard fails
