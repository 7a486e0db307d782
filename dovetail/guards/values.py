"""Equality as guards mean it: same type, same value, and nothing that arithmetic can tell apart."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any


def same_value(a: Any, b: Any) -> bool:
    """Whether `a` may stand in for the constant `b`: 1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return _BY_TYPE.get(type(b), _plainly_equal)(a, b)


def same_entries(a: Any, b: Any) -> bool:
    """Whether two dictionaries have the same keys, in any order, with the very same objects."""
    return a is not None and a.keys() == b.keys() and all(a[key] is value for key, value in b.items())


def _plainly_equal(a: Any, b: Any) -> bool:
    return bool(a == b)


def _same_float(a: float, b: float) -> bool:
    return a == b and copysign(1.0, a) == copysign(1.0, b) or (a != a and b != b)


def _same_complex(a: complex, b: complex) -> bool:
    return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)


def _same_sequence(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(same_value, a, b))


def _same_set(a: Any, b: Any) -> bool:
    return len(a) == len(b) and {(type(v), repr(v)) for v in a} == {(type(v), repr(v)) for v in b} and bool(a == b)


def _same_steps(a: Any, b: Any) -> bool:
    return _same_sequence((a.start, a.stop, a.step), (b.start, b.stop, b.step))


_BY_TYPE: dict[type, Callable[[Any, Any], bool]] = {
    float: _same_float,
    complex: _same_complex,
    tuple: _same_sequence,
    list: _same_sequence,
    set: _same_set,
    frozenset: _same_set,
    range: _same_steps,
    slice: _same_steps,
}
