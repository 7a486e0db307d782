"""What a template of attention is written from."""

from __future__ import annotations

import torch

from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Expr, Load
from dovetail.ir.records import dataclass

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Scores:
    """`value` is what a score becomes, `gradient` its gradient from that of the value (`tangent`), `mask` who sees it.

    `places` are the ranges b, h, i and j; what is loaded besides the score and the tangent is in `tables`, `table3` the
    fourth of all tensors that the functions read.
    """

    places: tuple[Dim, ...]
    score: Load
    tangent: Load
    value: Expr
    mask: Expr
    gradient: Expr | None
    tables: tuple[Buffer, ...]


@dataclass(frozen=True)
class Ranges:
    """For each block (first, first full, last full, last), last ones excluded; counted in blocks of the other side.

    `full`: is there one that is seen in full? `part`: is there one that is seen in part?
    """

    table: tuple[int, ...]
    full: bool
    part: bool


@dataclass(frozen=True)
class Attention:
    """Query and gradient are (batch, heads, rows, width or value width), key and value (batch, groups, keys, ...)."""

    batch: int
    heads: int
    groups: int  # heads of the key
    rows: int
    keys: int
    width: int
    value_width: int
    dtype: torch.dtype
    scale: float
    scores: Scores
    query: Strides
    key: Strides
    value: Strides

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Of all scores."""
        return self.batch, self.heads, self.rows, self.keys


@dataclass(frozen=True)
class Tiles:
    """So many rows and keys at once, by so many warps, with loads so many steps ahead."""

    rows: int
    keys: int
    warps: int
    stages: int
