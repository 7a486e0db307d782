"""A product of float32 matrices as kernels multiply them: `a (batch, m, k)` by `b (2, batch, n, k)`, whose two halves
add up to the second matrix, k contiguous."""

from __future__ import annotations

from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class ProductTiles:
    """Of the result, `rows` by `columns`; `deep` elements of the sum are multiplied at once."""

    rows: int
    columns: int
    warps: int
    stages: int
    deep: int = 32


@dataclass(frozen=True)
class Product:
    """`step` is a's stride between its rows (`by_rows`: k is contiguous) or, where its rows are, along k. `copied`: a
    is laid out anew, with zeros behind its rows.

    The sum is cut into `parts`, whose results are to be added up. `turned`: the result is written as `(n, m)`.
    """

    batch: int
    m: int
    n: int
    k: int
    strides: tuple[int, ...]  # of a, as it is given
    step: int
    of_batch: int  # a's stride between matrices
    by_rows: bool
    copied: bool
    turned: bool
    bias: bool
    parts: int
    tiles: ProductTiles

    @property
    def padded(self) -> int:
        """How long b's rows are: zeros follow."""
        return -(-self.k // self.tiles.deep) * self.tiles.deep

    @property
    def part(self) -> int:
        """How much of the sum each part is."""
        deep = self.tiles.deep
        return -(-self.padded // deep // self.parts) * deep
