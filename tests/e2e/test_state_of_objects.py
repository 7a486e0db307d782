"""What native code reads of a user's object may change from one call to the next."""

from __future__ import annotations

import bisect
import math
import operator
import os
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import dovetail

X = torch.arange(3.0)


@dataclass
class Plain:
    v: int


@dataclass(frozen=True, order=True)
class Frozen:
    v: int


class Full:
    """Takes part in every protocol, always by its `v`."""

    def __init__(self, v):
        self.v = v

    def __index__(self):
        return self.v

    def __float__(self):
        return float(self.v)

    def __floor__(self):
        return self.v

    def __str__(self):
        return f"<{self.v}>"

    def __format__(self, spec):
        return f"{self.v}{spec}"

    def __fspath__(self):
        return f"d{self.v}"

    def __bytes__(self):
        return b"a" * self.v

    def __hash__(self):
        return hash(self.v)

    def __eq__(self, other):
        return isinstance(other, Full) and self.v == other.v

    def __lt__(self, other):
        return self.v < other.v

    def __contains__(self, k):
        return k == self.v


READS = {
    "str": lambda p: str(p),
    "text of an exception": lambda p: str(ValueError(p)),
    "repr of an exception": lambda p: repr(KeyError(p, 1)),
    "f-string": lambda p: f"{p} {p!r} {[p]}",
    "format": lambda p: "{} {:}".format(p, p),
    "percent": lambda p: "%s" % p,
    "an empty format": lambda p: format(p),
    "floor": lambda p: math.floor(p),
    "sqrt": lambda p: math.sqrt(p),
    "isclose": lambda p: math.isclose(p, 1.0),
    "gcd": lambda p: math.gcd(p, 4),
    "float": lambda p: float(p),
    "hex": lambda p: hex(p),
    "operator.index": lambda p: operator.index(p),
    "join": lambda p: os.path.join("a", p),
    "bytes": lambda p: bytes(p),
    "bytearray": lambda p: bytearray(p),
    "repeat a string": lambda p: "ab" * p,
    "repeat a list": lambda p: [1] * p,
    "index a string": lambda p: "abcdef"[p],
    "index a range": lambda p: range(9)[p],
    "slice a string": lambda p: "abcdef"[p:],
    "slice a list": lambda p: [1, 2, 3, 4][:p],
    "ljust": lambda p: "a".ljust(p),
    "find": lambda p: "aaaa".find("a", p),
    "split": lambda p: "a b c d".split(" ", p),
    "to_bytes": lambda p: (5).to_bytes(p, "big"),
    "in a set": lambda p: p in {Full(1), Full(3)},
    "in a list": lambda p: p in [Full(1), Full(3)],
    "dictionary": lambda p: {Full(1): 4, Full(2): 5, Full(3): 6}[p],
    "equal sets": lambda p: {p} == {Full(2)},
    "equal tuples": lambda p: (p,) == (Full(2),),
    "ordered tuples": lambda p: (p,) < (Full(2),),
    "bisect": lambda p: bisect.bisect_left([Full(1), Full(2)], p),
    "hash": lambda p: hash(p),
    "contains": lambda p: 1 in p,
}


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except (TypeError, KeyError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("cls", [Full, Plain, Frozen])
@pytest.mark.parametrize("what", READS)
def test_a_changed_object_is_seen(what: str, cls: type) -> None:
    read = READS[what]

    def fn(x, p):
        return read(p), x + 1

    compiled, p = dovetail.compile(fn, backend="eager"), cls(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for v in (1, 3, 2):
            object.__setattr__(p, "v", v)
            actual, expected = outcome(compiled, X, p), outcome(fn, X, p)
            assert actual[0] == expected[0]


def test_a_format_that_a_class_does_not_know_is_the_programs_error() -> None:
    with pytest.raises(TypeError, match=r"unsupported format string passed to Plain\.__format__"):
        dovetail.compile(lambda p: f"{p:>3}", backend="eager")(Plain(1))


def test_a_key_that_changes_its_hash_is_looked_up_anew() -> None:
    table, p = {Full(1): 1.0, Full(2): 2.0}, Full(1)

    def fn(x):
        return x * table.get(p, 0.0) + (p in table) + table.get(Full(2)) * (p in {*table})

    compiled = dovetail.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for v in (1, 2, 3, 1):
            p.v = v
            torch.testing.assert_close(compiled(X), fn(X))
