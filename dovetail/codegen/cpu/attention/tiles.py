"""How attention is cut into blocks, and where a thread keeps what it works on."""

from __future__ import annotations

import torch

from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.attention.products import Tile
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.target import Processor
from dovetail.ir.attention import Attention
from dovetail.ir.records import dataclass

#: Of a block.
KEYS = 64
#: Height by vectors of a tile, by registers there are: as many accumulators as hide each other's latency.
_MANY, _FEW = {1: 8, 2: 8, 3: 6, 4: 4}, {1: 8, 2: 4, 3: 4}
_FLOAT, _LONG = 4, 8


def tile_of(attention: Attention, target: Processor) -> Tile:
    """No more rows to a block than there are, to the next vector."""
    lanes, rows = target.vector_bytes // _FLOAT, attention.rows
    heights = _MANY if target.vector_bytes == 64 or not target.x86 else _FEW
    vectors = min(max(heights), -(-rows // lanes)) if isinstance(rows, int) else max(heights)
    return Tile(heights[vectors], vectors, lanes)


@dataclass(frozen=True)
class ScoreBlock:
    """The scores of so many `rows` from row `i` on with so many `keys` from key `j` on."""

    i: Val
    j: Val
    rows: Val
    keys: Val


@dataclass(frozen=True)
class Work:
    """A thread's memory. `query`, `found`: a line for each place along a head's width; `scores`: one for each key;
    `shown`: bits for each vector of rows and each key; then numbers of each row: the largest score so far, the sum of
    weights, and by what the last block has changed both. `wide`: keys or values of a narrow type in float32.
    """

    scores: Val
    shown: Val
    largest: Val
    total: Val
    change: Val
    query: Val
    found: Val
    wide: Val


def _fixed(tile: Tile) -> list[int]:
    """Bytes of what does not depend on how wide heads are."""
    return [KEYS * tile.columns * _FLOAT, tile.vectors * KEYS * _LONG, *[tile.columns * _FLOAT] * 3]


def memory(tile: Tile, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes that a thread needs: so many, and so many for each place along the widths of key and value."""
    lines = (2 * tile.lanes) * tile.columns * _FLOAT
    each = tile.columns * _FLOAT + (0 if dtype is torch.float32 else KEYS * _FLOAT)
    return sum(_fixed(tile)) + lines + 64, each


def work_of(made: KernelFunction, start: Val, tile: Tile, width: Val, value_width: Val) -> Work:
    """As it lies from `start` on."""
    at, places = 0, list[Val]()
    for size in _fixed(tile):
        places.append(made.at(start, at // _FLOAT))
        at += size
    places.append(made.at(start, at // _FLOAT))
    for length in (width, value_width):
        lines = made.w.binary("add", length, made.number(tile.lanes))
        places.append(made.at(places[-1], lines, tile.columns))
    return Work(*places)
