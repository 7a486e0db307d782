"""What a template of attention is written from."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Expr, Load
from dovetail.ir.records import dataclass

Size = Any  # a Dim; in kernels for a GPU, an int
Strides = tuple[Size, ...]


@dataclass(frozen=True)
class Scores:
    """`value` is what a score becomes, `gradient` its gradient from that of the value (`tangent`), `mask` who sees it.

    `places` are the ranges b, h, i and j; what is loaded besides the score and the tangent is in `tables`, `table3` the
    fourth of all tensors that the functions read.

    `sums` pairs elements of tables that need gradients with the gradient there. `checks` and `mask_checks` are the
    conditions, each with its message, under which indices of `value` and of `mask` are inside.
    """

    places: tuple[Dim, ...]
    score: Load
    tangent: Load
    value: Expr
    mask: Expr
    gradient: Expr | None
    tables: tuple[Buffer, ...]
    sums: tuple[tuple[Load, Expr], ...] = ()
    checks: tuple[tuple[Expr, str], ...] = ()
    mask_checks: tuple[tuple[Expr, str], ...] = ()

    @property
    def mask_tables(self) -> frozenset[Buffer]:
        """Tables that say what is seen."""
        found = (self.mask, *(condition for condition, _ in self.mask_checks))
        return frozenset(load.buffer for expr in found for load in expr.loads)

    @property
    def learned(self) -> tuple[Buffer, ...]:
        """Tables that have gradients."""
        return tuple(dict.fromkeys(element.buffer for element, _ in self.sums))


@dataclass(frozen=True)
class Ranges:
    """For each block (first, first full, last full, last), last ones excluded; counted in blocks of the other side.

    `full`: is there one that is seen in full? `part`: is there one that is seen in part? `listed`: the table is empty,
    and a tensor lists the blocks, which a call finds out by asking for every place.
    """

    table: tuple[int, ...]
    full: bool
    part: bool
    listed: bool = False


@dataclass(frozen=True)
class Attention:
    """Query and gradient are (batch, heads, rows, width or value width), key and value (batch, groups, keys, ...)."""

    batch: Size
    heads: Size
    groups: Size  # heads of the key
    rows: Size
    keys: Size
    width: Size
    value_width: Size
    dtype: torch.dtype
    scale: float
    scores: Scores
    query: Strides
    key: Strides
    value: Strides

    @property
    def masks(self) -> tuple[Size, Size]:
        """For how many of the batch and of the heads what is seen differs."""
        asked = [dims.as_symbol(place) in self.scores.mask.symbols for place in self.scores.places[:2]]
        return self.batch if asked[0] else 1, self.heads if asked[1] else 1

    @property
    def sizes(self) -> tuple[Size, Size, Size, Size]:
        """Of all scores."""
        return self.batch, self.heads, self.rows, self.keys


@dataclass(frozen=True)
class Tiles:
    """So many rows and keys at once, by so many warps, with loads so many steps ahead."""

    rows: int
    keys: int
    warps: int
    stages: int
