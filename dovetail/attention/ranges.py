"""Which keys each block of rows sees in a kernel, and among them those of which it sees all.

    causal, blocks of 64 rows and 64 keys    ->    (0, 0, 0, 1), (0, 0, 1, 2), (0, 0, 2, 3), ...

or, the other way round, which rows see each block of keys.
"""

from __future__ import annotations

from typing import Any

from dovetail.ir.attention import Ranges
from dovetail.ir.records import dataclass
from dovetail.ops.calls.attention_blocks import shown

#: Questions about ranges of places, 20 us each: what is left after so many is taken as seen in part.
MOST_QUESTIONS = 8192

#: From so many blocks on of which nothing is known, and that share of all, it is worth asking a mask for every place.
FEWEST_UNKNOWN, LEAST_SHARE = 256, 0.25

_HIDDEN, _PART, _FULL = range(3)


@dataclass(frozen=True)
class Grid:
    """Scores of those sizes (batch, heads, rows, keys) in blocks of `rows` by `keys`; `across`: by blocks of keys."""

    sizes: tuple[int, int, int, int]
    rows: int
    keys: int
    across: bool = False

    @property
    def sides(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """How long each side is and the length of a block of it, the side that programs share first."""
        found = (self.sizes[2], self.rows), (self.sizes[3], self.keys)
        return found[::-1] if self.across else found

    @property
    def counts(self) -> tuple[int, int]:
        """How many blocks each side has."""
        (outer, step), (inner, width) = self.sides
        return -(-outer // step), -(-inner // width)


def ranges(mask_mod: Any, grid: Grid) -> Ranges:
    """By what is known of the mask_mod's graph; blocks beyond the last place count as seen in part."""
    asking = _Asking(mask_mod.graph, grid)
    rows = [asking.row(k) for k in range(grid.counts[0])]
    table = tuple(n for row in rows for n in _bounds(row))
    full = any(table[k + 1] < table[k + 2] for k in range(0, len(table), 4))
    part = any(table[k] < table[k + 1] or table[k + 2] < table[k + 3] for k in range(0, len(table), 4))
    return Ranges(table, full, part)


def unknown(mask_mod: Any, grid: Grid) -> bool:
    """Is too little known of the mask_mod's graph to say which blocks are hidden?"""
    asking = _Asking(mask_mod.graph, grid)
    parts = sum(asking.row(k).count(_PART) for k in range(grid.counts[0]))
    return parts >= max(FEWEST_UNKNOWN, LEAST_SHARE * grid.counts[0] * grid.counts[1])


class _Asking:
    def __init__(self, graph: Any, grid: Grid) -> None:
        self.graph, self.grid, self.left = graph, grid, MOST_QUESTIONS

    def row(self, block: int) -> list[int]:
        """How much is seen of each block of the other side."""
        (outer, step), (inner, width) = self.grid.sides
        here = block * step, min(block * step + step, outer) - 1
        found = [_PART] * self.grid.counts[1]
        self.fill(found, here, 0, len(found))
        if inner % width and found[-1] == _FULL:
            found[-1] = _PART
        return found

    def fill(self, found: list[int], here: tuple[int, int], low: int, high: int) -> None:
        seen = self.seen(here, low, high)
        if seen != _PART:
            found[low:high] = [seen] * (high - low)
        elif high - low > 1 and self.left > 0:
            middle = (low + high) // 2
            self.fill(found, here, low, middle)
            self.fill(found, here, middle, high)

    def seen(self, here: tuple[int, int], low: int, high: int) -> int:
        self.left -= 1
        inner, width = self.grid.sides[1]
        there = low * width, min(high * width, inner) - 1
        pair = (there, here) if self.grid.across else (here, there)
        batch, heads = self.grid.sizes[:2]
        truth = shown(self.graph, [(0, batch - 1), (0, heads - 1), *pair])
        return _PART if not truth.truth else _HIDDEN if truth.high == 0 else _FULL if truth.low == 1 else _PART


def _bounds(row: list[int]) -> tuple[int, int, int, int]:
    seen = [k for k, how in enumerate(row) if how != _HIDDEN]
    if not seen:
        return (0, 0, 0, 0)
    first, last = seen[0], seen[-1] + 1
    best, start = (first, first), first
    for k in range(first, last + 1):
        if k == last or row[k] != _FULL:
            best = max(best, (start, k), key=lambda pair: pair[1] - pair[0])
            start = k + 1
    return first, *best, last

