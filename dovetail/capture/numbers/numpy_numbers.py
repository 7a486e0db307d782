"""NumPy's numbers made of sizes and numbers that vary: `np.prod(x.shape)`, `np.sqrt(n)`, and arithmetic on them.

Each has the same number as Python's beside it (`NumpyNumber.plain`), which operations on tensors, `int()` and the like
are given. What is not known here asks for the value, as for any number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from dovetail.capture.numbers import dispatch
from dovetail.capture.numbers.input_numbers import InputNumber, number_of, source_of, varies
from dovetail.capture.numbers.input_numbers import computed as made_by_residual
from dovetail.capture.tables.operator_names import ARITHMETIC, BINARY
from dovetail.capture.values.base import Args, Const, Session, Value
from dovetail.capture.values.containers import SequenceValue
from dovetail.capture.values.number import Precedence, answering
from dovetail.ir.source import Source

_KINDS: dict[type, type] = {np.int64: int, np.float64: float}
_PYTHONS: dict[Any, type] = {int: int, float: float, operator.index: int}
_OWN = (abs, round, min, max)  # these give NumPy's


class NumpyNumber(InputNumber):
    """One of NumPy's numbers, made of such numbers; `plain` is the same as Python's."""

    __slots__ = ("plain",)
    precedence = Precedence.NUMPY

    def __init__(self, s: Session, real: Any, source: Source, plain: Value) -> None:
        super().__init__(s, real, source, True)
        self.plain = plain

    def binary(self, s: Session, name: str, left: Any, right: Any) -> Value | None:
        if name not in ARITHMETIC or not (_is_number(left) and _is_number(right)):
            return None
        found = dispatch.binary(s, name, _pythons(left), _pythons(right))
        with np.errstate(all="ignore"):
            wanted = BINARY[name](number_of(left), number_of(right))
        same = found is not None and varies(found) and wanted == found.real  # type: ignore[attr-defined]
        return _made(s, type(wanted), found) if same else None

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        if not (_is_number(left) and _is_number(right)):
            return None
        found = dispatch.compare(s, sign, plain_number(left), plain_number(right))
        return None if found is None else Const(np.bool_(found.native()))

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        """Python's functions, those of them that give Python's numbers for NumPy's."""
        given = [plain_number(a) for a in args]
        if function in _PYTHONS and given[0].cls is _PYTHONS[function]:
            return given[0]
        return None if function in _OWN else dispatch.call(s, function, given)

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        number = answering(self.plain)
        return None if number is None else number.as_argument(s, numbers)


def plain_number(value: Any) -> Any:
    """The same number as Python's."""
    return value.plain if isinstance(value, NumpyNumber) and not value.seen else value


def _pythons(value: Any) -> Any:
    return Const(value.value.item()) if value.cls in _KINDS and not varies(value) else plain_number(value)


def _made(s: Session, kind: type, number: Any) -> Value | None:
    """`number` as a NumPy number of this kind; None where it does not vary or is of another kind."""
    if kind not in _KINDS or not varies(number) or number.cls is not _KINDS[kind]:
        return None
    return NumpyNumber(s, kind(number.real), source_of(s, "{}({})", [s.bind(kind), number]), number)


def _is_number(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, *_KINDS)


def computed(s: Session, function: Any, args: list, kwargs: dict[str, Any]) -> Value | None:
    """`function(*args, **kwargs)` of NumPy, where sizes or numbers that vary take part; None where it is not known."""
    if kwargs or len(args) != 1:
        return None
    (value,) = args
    if function in _REDUCTIONS and isinstance(value, SequenceValue):
        items = [plain_number(v) for v in value.all(s)]
        if not items or not all(isinstance(v, Const) and v.cls is int for v in items):
            return None
        return _made(s, np.int64, _REDUCTIONS[function](s, items)) if any(map(varies, items)) else None
    value = plain_number(value)
    if not varies(value) or value.cls not in _KINDS.values():
        return None
    if function in _KINDS:
        same = value.cls is _KINDS[function]
        return _made(s, function, value if same else dispatch.call(s, _KINDS[function], [value]))
    if not isinstance(function, np.ufunc) or function.nin != 1 or function.nout != 1:
        return None
    with np.errstate(all="ignore"):
        found = function(value.real)
    if type(found) not in _KINDS:
        return None
    parts = [s.bind(_KINDS[type(found)]), s.bind(function), value]
    return _made(s, type(found), made_by_residual(s, "{}({}({}))", parts, found.item(), False))


def _product(s: Session, items: list) -> Any:
    return reduce(lambda a, b: dispatch.binary(s, "mul", a, b) or Const(a.value * b.value), items)


def _extreme(function: Any) -> Callable[[Any, list], Any]:
    return lambda s, items: dispatch.call(s, function, items) if len(items) > 1 else items[0]


_REDUCTIONS: dict[Any, Callable[[Any, list], Any]] = {
    np.prod: _product, np.sum: lambda s, items: dispatch.added(s, items, Const(0)), np.max: _extreme(max),
    np.min: _extreme(min),
}  # fmt: skip
