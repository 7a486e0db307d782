"""The numbers that Dims stand for: with values for their symbols, and typical ones, which costs go by."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dovetail.ir import dims
from dovetail.ir.dimatoms import cached
from dovetail.ir.dims import Atom, Binary, Dim, FloorDiv, Max, Min, Mod, Poly, RuntimeIndex, Symbol


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


@cached
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


# ---------------------------------------------------------------- where a program finds them


def bind(given: Iterable[tuple[str, Dim]]) -> dict[Symbol, str]:
    """A Python expression for each symbol that can be told, in an order in which later ones may use earlier ones.

        [("x.size(0)", s0), ("y.size(1)", 2*s1 + s0)]    ->    {s0: "x.size(0)", s1: "(y.size(1) - s0) // 2"}
    """
    found: dict[Symbol, str] = {}
    open_: list[tuple[str, Dim]] = []
    for text, dim in given:
        symbols = dims.symbols(dim)
        if len(symbols) == 1 and dim is dims.of_atom(next(iter(symbols))):
            found.setdefault(next(iter(symbols)), text)
        elif symbols:
            open_.append((text, dim))
    while open_:
        left = [pair for pair in open_ if not _solve(*pair, found)]
        if len(left) == len(open_):
            break
        open_ = left
    return found


def _solve(text: str, dim: Dim, found: dict[Symbol, str]) -> bool:
    """Is nothing left to learn from `dim`? A symbol that it tells is added."""
    unknown = [s for s in dims.symbols(dim) if s not in found]
    if len(unknown) != 1:
        return not unknown
    (symbol,) = unknown
    step = dims.coefficient(dim, symbol)
    if not isinstance(step, int) or step == 0:
        return False
    rest = dim - dims.of_atom(symbol) * step
    found[symbol] = f"({text} - ({rest})) // {step}"
    return True


def values(given: Iterable[tuple[int, Dim]]) -> dict[Symbol, int]:
    """The symbols' values, where the Dims have these."""
    pairs = list(given)
    env: dict[str, object] = {"given": [number for number, _ in pairs]}
    found = bind((f"given[{k}]", dim) for k, (_, dim) in enumerate(pairs))
    for symbol, text in found.items():
        env[symbol.name] = eval(text, {}, env)
    return {symbol: env[symbol.name] for symbol in found}  # type: ignore[misc]
