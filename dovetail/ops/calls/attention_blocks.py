"""Which keys a block of rows may see, by what a mask_mod's graph says of ranges of places without any tensor.

    (i >= j) & (i - j < 256), rows 512 to 640   ->   keys 256 to 640

Whole numbers are followed as intervals, so what is left out is hidden for certain. What is read from tensors may be
anything, and so may fractions, which are rounded. The graph writes to nothing: capture sees to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.nodes import name_of
from dovetail.ir.records import dataclass

#: Below that many rows products are too small for a library.
LEAST_ROWS = 128
#: Each block is kernels and library calls of its own.
MOST_BLOCKS = 16
#: Of all scores: with more than that to compute, one block is as good.
_WORTH = 0.75


@dataclass(frozen=True)
class Between:
    """A number from `low` to `high`; of a condition (`truth`), 0 is false and 1 is true."""

    low: float
    high: float
    truth: bool = False


ANYTHING = Between(-math.inf, math.inf)


def blocks(mask_mod: Any, sizes: tuple[Any, ...]) -> list[tuple[int, int, int, int]]:
    """(first row, last, first key, last) of blocks that cover all rows and all that mask_mod may show; last excluded.

    `sizes` are those of the scores: batch, heads, rows, keys.
    """
    rows, keys = sizes[2:]
    whole = [(0, rows, 0, keys)]
    if not all(isinstance(n, int) for n in sizes) or rows <= LEAST_ROWS or not all(sizes):
        return whole
    step = max(LEAST_ROWS, LEAST_ROWS * -(-rows // (MOST_BLOCKS * LEAST_ROWS)))
    found = []
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        places = [(0, sizes[0] - 1), (0, sizes[1] - 1), (start, stop - 1)]
        seen = [k for k in range(0, keys, step) if not _hidden(mask_mod.graph, [*places, (k, min(k + step, keys) - 1)])]
        first, last = (seen[0], min(seen[-1] + step, keys)) if seen else (0, 1)
        found.append((start, stop, first, last))
    area = sum((stop - start) * (last - first) for start, stop, first, last in found)
    return found if area <= _WORTH * rows * keys else whole


def _hidden(graph: torch.fx.Graph, places: list[tuple[int, int]]) -> bool:
    """Is the mask false for all these places?"""
    result = shown(graph, places)
    return result.truth and result.high == 0


def shown(graph: torch.fx.Graph, places: list[tuple[int, int]]) -> Between:
    """What the mask is for these places. They are the first parameters' ranges, ends included."""
    known: dict[Any, Between] = {}
    given = iter(places)
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = Between(*place) if (place := next(given, None)) else ANYTHING
        elif node.op == "output":
            return known.get(node.args[0][0], ANYTHING)
        else:
            known[node] = _value(node, known)
    return ANYTHING


def _value(node: torch.fx.Node, known: dict[Any, Between]) -> Between:
    name = name_of(node)
    if name in _FILLED and node.kwargs.get("dtype") is torch.bool:
        return Between(_FILLED[name], _FILLED[name], True)
    rule = _RULES.get(name.strip("_"))
    args = [_number(a, known) for a in node.args]
    if rule is None or node.kwargs or len(args) != rule[0]:
        return ANYTHING
    return rule[1](*args)


def _number(argument: Any, known: dict[Any, Between]) -> Between:
    if isinstance(argument, torch.fx.Node):
        return known.get(argument, ANYTHING)
    if type(argument) is bool:
        return Between(argument, argument, True)
    return Between(argument, argument) if type(argument) is int else ANYTHING


def _least(a: Between, b: Between) -> Between:
    return Between(float(a.low >= b.high), float(a.high >= b.low), True)


def _above(a: Between, b: Between) -> Between:
    return Between(float(a.low > b.high), float(a.high > b.low), True)


def _equal(a: Between, b: Between) -> Between:
    certain = a.low == a.high == b.low == b.high and math.isfinite(a.low)
    return Between(float(certain), float(a.low <= b.high and b.low <= a.high), True)


def _not(a: Between) -> Between:
    return Between(1 - a.high, 1 - a.low, True) if a.truth else ANYTHING


def _and(a: Between, b: Between) -> Between:
    """With bits of a number too: false makes them all false."""
    high = min((x.high for x in (a, b) if x.truth), default=1)
    if a.truth and b.truth:
        return Between(min(a.low, b.low), high, True)
    return Between(0, 0, True) if high == 0 else ANYTHING


def _or(a: Between, b: Between) -> Between:
    return Between(max(a.low, b.low), max(a.high, b.high), True) if a.truth and b.truth else ANYTHING


def _arithmetic(ends: Callable[..., list[float]]) -> Callable[..., Between]:
    """An operator on numbers by what it may give at most and at least; conditions add up in a way of their own."""

    def rule(*args: Between) -> Between:
        found = ends(*args)
        known = not any(a.truth for a in args) and not any(map(math.isnan, found))
        return Between(min(found), max(found)) if known else ANYTHING

    return rule


def _absolute(a: Between) -> list[float]:
    return [abs(a.low), abs(a.high), *([0] if a.low <= 0 <= a.high else [])]


def _floor(a: Between, b: Between) -> list[float]:
    return [end // b.low for end in (a.low, a.high)] if b.low == b.high > 0 else [math.nan]


def _remainder(a: Between, b: Between) -> list[float]:
    """Between multiples it rises; beyond one, it is anything."""
    if not b.low == b.high > 0:
        return [math.nan]
    low, high = _floor(a, b)
    return [a.low - low * b.low, a.high - high * b.low] if low == high else [0, b.low - 1]


_FILLED = {"new_ones": 1, "new_zeros": 0}
#: By the name of a function or method: how many arguments, and what it gives.
_RULES: dict[str, tuple[int, Callable[..., Between]]] = {
    "add": (2, _arithmetic(lambda a, b: [a.low + b.low, a.high + b.high])),
    "sub": (2, _arithmetic(lambda a, b: [a.low - b.high, a.high - b.low])),
    "mul": (2, _arithmetic(lambda a, b: [x * y for x in (a.low, a.high) for y in (b.low, b.high)])),
    **{name: (2, _arithmetic(_floor)) for name in ("floordiv", "floor_divide")},
    **{name: (2, _arithmetic(_remainder)) for name in ("mod", "remainder")},
    "neg": (1, _arithmetic(lambda a: [-a.low, -a.high])), "abs": (1, _arithmetic(_absolute)),
    "ge": (2, _least), "le": (2, lambda a, b: _least(b, a)), "gt": (2, _above), "lt": (2, lambda a, b: _above(b, a)),
    "eq": (2, _equal), "ne": (2, lambda a, b: _not(_equal(a, b))),
    "and": (2, _and), "logical_and": (2, _and), "or": (2, _or), "logical_or": (2, _or),
    "logical_not": (1, _not), "invert": (1, _not),
}  # fmt: skip
