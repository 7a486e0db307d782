"""What the programs have: modules, classes, and objects that are the same in every call."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import math
import operator
from typing import Any

import numpy as np
import torch

__all__ = [
    "C", "D", "P", "Pt", "R", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions", "functools",
    "itertools", "math", "nan", "np", "operator", "p", "q", "r1", "r2", "r3", "torch",
]  # fmt: skip


class P:
    """Equal to itself alone."""

    def __init__(self, v: Any = 1) -> None:
        self.v = v


class R:
    """Equal to what holds the same."""

    def __init__(self, v: int) -> None:
        self.v = v

    def __eq__(self, other: object) -> bool:
        return type(other) is R and self.v == other.v

    def __hash__(self) -> int:
        return hash(self.v)

    def __lt__(self, other: Any) -> bool:
        return bool(self.v < other.v)

    def __len__(self) -> int:
        return self.v

    def __iter__(self) -> Any:
        return iter(range(self.v))


class C(enum.Enum):
    A = 1
    B = 2


@dataclasses.dataclass
class D:
    a: Any
    b: Any = 2


Pt = collections.namedtuple("Pt", "x y")
p, q, r1, r2, r3, nan = P(), P(2), R(1), R(1), R(2), float("nan")
