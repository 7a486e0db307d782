"""What is done with sizes that differ from call to call.

A size is a `SizeValue`, a Dim over symbols that stand for sizes of inputs. Arithmetic on sizes is the Dims'; a
comparison relies on its outcome only (`ops/fake/symbolic/sizes.py`). An operation gets a size as an input of the graph,
one for each distinct expression, which the residual computes. Numbers that vary become symbols where they meet sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.numbers.input_numbers import InputNumber, size_argument
from dovetail.capture.outside.wrap import FRESH
from dovetail.capture.values.base import Args, Const, Session, Value, boolean
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.containers import DictValue, SequenceValue, TupleValue
from dovetail.capture.values.number import Precedence, SymbolicNumber, answering
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.literals import literal
from dovetail.ir.sizesource import source_of, too_long
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, UNEQUAL, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, is_size

Rule = Callable[..., Dim | None]  # of the sizes of the compilation and the Dims of the operands


class DimNumber(SymbolicNumber):
    """An integer made of sizes: `dim`, over their symbols. What is no arithmetic of Dims is left to the next base."""

    __slots__ = ()
    dim: Dim

    def decide(self, s: Session, claim: tuple[str, Dim], sign: str, left: Value, right: Value) -> Value:
        """The truth of `left sign right`, which is the same as the claim."""
        raise NotImplementedError

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        return _made(s, OPERATORS.get(name), [left, right]) or super().binary(s, name, left, right)

    def unary(self, s: Session, name: str) -> Value | None:
        if name == "neg":
            return size_value(s, -self.dim)
        return self if name == "pos" else super().unary(s, name)

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        a, b = as_dim(s, left), as_dim(s, right)
        if a is None or b is None:
            return super().compare(s, sign, left, right)
        return self.decide(s, CLAIMS[sign](a - b), sign, left, right)

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        return _made(s, FUNCTIONS.get(function), args) or super().apply(s, function, args)

    def as_dim(self, s: Session) -> Dim:
        return s.table.sizes.resolve(self.dim)


class SizeValue(DimNumber, InputNumber):
    """A size of inputs, or what is made of such sizes. Asking for its value relies on it."""

    __slots__ = ("dim",)
    precedence = Precedence.SIZE

    def __init__(self, s: Session, dim: Dim) -> None:
        self.s, self.dim = s, dim
        self.real = s.table.sizes.hint(dim)
        self.source = source_of(dim, s.table.sources)

    @property
    def seen(self) -> bool:  # type: ignore[override]
        return isinstance(self.s.table.sizes.resolve(self.dim), int)

    @property
    def value(self) -> int:
        return self.s.table.sizes.value(self.dim)

    def __repr__(self) -> str:
        return f"<SizeValue {self.dim}>"

    def decide(self, s: Session, claim: tuple[str, Dim], sign: str, left: Value, right: Value) -> Value:
        """The entry relies on the outcome."""
        return boolean(s.table.sizes.holds(*claim))

    def truth(self, s: Session) -> bool:
        return s.table.sizes.holds(UNEQUAL, self.as_dim(s))

    def total(self, s: Session, values: list[Value], start: Value) -> Value | None:
        return _made(s, lambda sizes, *found: sum(found), [*values, start]) or super().total(s, values, start)

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        return size_argument(s, self, numbers)


def size_value(s: Session, dim: Any) -> Value:
    """The value for a Dim, or for what PyTorch gives as a size."""
    if isinstance(dim, torch.SymInt) and dim.node.is_nested_int():
        s.unsupported("nested-tensor", "the code reads the size of a ragged dimension, which is no number")
    dim = dim_of(dim) if isinstance(dim, torch.SymInt) else s.table.sizes.resolve(dim)
    if isinstance(dim, int):
        return Const(dim)
    if s.table.sizes.is_unbacked(dim):
        return s.unbacked_size(dim)
    return Const(s.table.sizes.value(dim)) if too_long(dim) else SizeValue(s, dim)


FRESH[torch.Size] = lambda s, obj: TupleValue([size_value(s, v) for v in obj], torch.Size)
FRESH[torch.SymInt] = size_value


def is_open_size(value: Any) -> bool:
    """Is it an integer made of sizes, and still no constant?"""
    return isinstance(value, DimNumber) and value.open


# ---------------------------------------------------------------- arithmetic


def as_dim(s: Session, value: Any) -> Dim | None:
    """The Dim of an integer; None for what is none."""
    number = answering(value)
    if number is not None:
        return number.as_dim(s)
    return int(value.value) if isinstance(value, Const) and value.cls in (int, bool) else None


def _made(s: Session, rule: Rule | None, operands: list[Value]) -> Value | None:
    """What the rule makes of the operands; None where one is no integer, or the result is no Dim."""
    found = [as_dim(s, value) for value in operands] if rule is not None else [None]
    made = None if rule is None or None in found else rule(s.table.sizes, *found)
    return None if made is None else size_value(s, made)


def _divided(function: Callable[[Dim, Dim], Dim]) -> Callable[[Sizes, Dim, Dim], Dim | None]:
    """The Dims' divisions are by positive numbers."""
    return lambda sizes, a, b: function(a, b) if sizes.holds(AT_LEAST, b - 1) else None


def _power(sizes: Sizes, a: Dim, b: Dim) -> Dim | None:
    return dims.product([a] * b) if isinstance(b, int) and 0 <= b < 8 else None


OPERATORS: dict[str, Rule] = {
    "add": lambda sizes, a, b: a + b, "sub": lambda sizes, a, b: a - b, "mul": lambda sizes, a, b: a * b,
    "floordiv": _divided(dims.floordiv), "mod": _divided(dims.mod), "pow": _power,
}  # fmt: skip


def _extreme(function: Callable[[Dim, Dim], Dim], least: bool) -> Callable[..., Dim]:
    def reduced(sizes: Sizes, first: Dim, *others: Dim) -> Dim:
        for other in others:
            below = sizes.known(AT_LEAST, other - first)  # is the first the smaller one?
            below = False if below is None and sizes.known(AT_LEAST, first - other) else below
            first = function(first, other) if below is None else first if below is least else other
        return first

    return reduced


def _absolute(sizes: Sizes, dim: Dim) -> Dim | None:
    return dim if sizes.known(AT_LEAST, dim) else -dim if sizes.known(AT_LEAST, -dim) else None


FUNCTIONS: dict[Any, Rule] = {
    int: lambda sizes, dim: dim, operator.index: lambda sizes, dim: dim, abs: _absolute,
    min: _extreme(dims.minimum, True), max: _extreme(dims.maximum, False),
}  # fmt: skip


CLAIMS: dict[str, Callable[[Dim], tuple[str, Dim]]] = {
    "==": lambda d: (EQUAL, d), "!=": lambda d: (UNEQUAL, d), ">=": lambda d: (AT_LEAST, d),
    ">": lambda d: (AT_LEAST, d - 1), "<=": lambda d: (AT_LEAST, -d), "<": lambda d: (AT_LEAST, -d - 1),
}  # fmt: skip


# ---------------------------------------------------------------- what a graph break hands on


def varying_parts(value: Any, depth: int = 3) -> list[str]:
    """The paths, from a value that a graph break hands on, to sizes in it that vary."""
    if isinstance(value, TensorValue):
        return [f".shape[{k}]" for k, n in enumerate(value.fake.shape) if is_size(n) and not isinstance(dim_of(n), int)]
    if is_open_size(value):
        return [""]
    if not depth or not isinstance(value, (CellValue, SequenceValue, DictValue)):
        return []
    return [f"{step}{part}" for step, item in _items(value) for part in varying_parts(item, depth - 1)]


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, CellValue):
        return [(".cell_contents", value.contents)]
    if isinstance(value, DictValue) and value.unread is not None:
        return []  # asking would rely on what it holds
    if isinstance(value, DictValue):
        return [(f"[{literal(key)}]", item) for key, (_, item) in value.entries.items() if type(key) in (int, str)]
    return [(f"[{k}]", item) for k, item in enumerate(value.head)] if value.span is None else []
