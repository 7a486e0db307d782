"""Where a program finds the values of its size symbols: in the sizes of its inputs, and in numbers that it is given.

    [("x.size(0)", s0), ("y.size(1)", 2*s1 + s0)]    ->    {s0: "x.size(0)", s1: "(y.size(1) - s0) // 2"}
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol


def bind(given: Iterable[tuple[str, Dim]]) -> dict[Symbol, str]:
    """A Python expression for each symbol that can be told, in an order in which later ones may use earlier ones."""
    found: dict[Symbol, str] = {}
    open_: list[tuple[str, Dim]] = []
    for text, dim in given:
        symbols = dims.symbols(dim)
        if len(symbols) == 1 and dim is dims.of_symbol(next(iter(symbols))):
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
    rest = dim - dims.of_symbol(symbol) * step
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
