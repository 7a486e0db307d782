"""The numbers that Dims stand for: with values for their symbols, and typical ones, which costs go by."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dovetail.ir.dims import Atom, Binary, Dim, FloorDiv, Max, Min, Mod, Poly, RuntimeIndex, Symbol, table


def evaluate(dim: Dim, env: Mapping[Symbol, Any], of_value: Callable[[Any], Any] | None = None) -> Any:
    """The number (or array, when env holds arrays) that `dim` stands for."""
    if isinstance(dim, int):
        return dim
    total: Any = 0
    for monomial, c in dim.terms:
        term: Any = c
        for atom in monomial:
            term = term * _evaluate_atom(atom, env, of_value)
        total = total + term
    return total


def _evaluate_atom(atom: Atom, env: Mapping[Symbol, Any], of_value: Any) -> Any:
    if isinstance(atom, Symbol):
        return env[atom]
    if isinstance(atom, RuntimeIndex):
        return of_value(atom.expr)
    assert isinstance(atom, Binary)
    left, right = evaluate(atom.left, env, of_value), evaluate(atom.right, env, of_value)
    return _COMPUTE[type(atom)](left, right)


def typical(dim: Dim) -> int:
    """A value to judge costs and the order of strides by; no size counts as less than 2."""
    return dim if isinstance(dim, int) else _typical(dim)


@cache
def _typical(dim: Poly) -> int:
    return evaluate(dim, {s: max(typical_of(s), 2) for s in dim.symbols})


def typical_of(symbol: Symbol) -> int:
    """The same for one symbol: the last position of a range, a hint, or `UNKNOWN`."""
    if symbol.extent is not None:
        return typical(symbol.extent) - 1
    return UNKNOWN if symbol.hint is None else symbol.hint


UNKNOWN = 64  # what a size without a hint counts as


def _least(a: Any, b: Any) -> Any:
    return a * (a <= b) + b * (b < a)


_COMPUTE: dict[type, Callable[[Any, Any], Any]] = {
    FloorDiv: operator.floordiv, Mod: operator.mod, Min: _least, Max: lambda a, b: -_least(-a, -b),
}

table.caches.append(_typical.cache_clear)
