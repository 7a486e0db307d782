"""Ranges cut into parts: what programs share out among themselves, and what each reduces by itself.

before:  n < 16, h < 4096            four parts:    n.p < 4        n.q < 4, h < 4096      n = 4 * n.p + n.q
before:  h < 50257                   fifty parts:   h.p < 49       h.q < 1024             h = 1024 * h.p + h.q
                                     and the rest:                 h.r < 81               h = 1024 * 49 + h.r
"""

from __future__ import annotations

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.launch import power_of_two
from dovetail.ir.ranges import extent
from dovetail.ir.records import dataclass
from dovetail.schedule.fusion.nest import count

#: Elements that a range whose size is not known is taken for; that one program reduces alone in any case.
SHORT = 2048


@dataclass(frozen=True)
class RangePiece:
    """Programs alike: one for each index of `shared`, which reduces `own` and is the part at `place`."""

    shared: tuple[Dim, ...]
    own: tuple[Dim, ...]
    place: tuple[Dim, ...]
    mapping: dict[Symbol, Dim]  # what becomes of a range that is cut

    @property
    def count(self) -> Dim:
        """Elements that a part has."""
        return count(self.own)


@dataclass(frozen=True)
class Cut:
    """`parts` number them all; each has `count` elements."""

    pieces: tuple[RangePiece, ...]
    parts: tuple[Dim, ...]
    count: Dim


def cut(inner: tuple[Dim, ...], parts: int, kept: bool = False, near: bool = False) -> Cut:
    """The ranges in so many parts, a few more, or fewer where sizes are unknown. `kept`: registers are to hold one.
    `near`: rather fewer than many more."""
    shared: list[Dim] = []
    for k, r in enumerate(inner):
        left = -(-parts // max(known(count(tuple(shared))), 1))
        if left <= 1:
            return _even(tuple(shared), inner[k:], {})
        size, last = extent(r), k + 1 == len(inner)
        factor = _factor(size, left, near)
        few = factor < (left // 2 if near else left)
        if last and isinstance(size, int) and 1 < left < size and (few or kept):
            return _powers(tuple(shared), r, power_of_two(-(-size // left)))
        if not few or last and factor > 1:
            high, low = _range(r, "p", factor), _range(r, "q", size // factor)
            own = (low, *inner[k + 1 :])
            return _even((*shared, high), own, {dims.as_symbol(r): high * (size // factor) + low})
        if last:
            break
        shared.append(r)
    return _even(tuple(shared), inner[len(shared) :], {})


def _even(shared: tuple[Dim, ...], own: tuple[Dim, ...], mapping: dict[Symbol, Dim]) -> Cut:
    return Cut((RangePiece(shared, own, shared, mapping),), shared, count(own))


def _powers(shared: tuple[Dim, ...], r: Dim, length: int) -> Cut:
    """Parts as long as a tile is, and one with the rest."""
    size, symbol = extent(r), dims.as_symbol(r)
    assert isinstance(size, int)
    full, rest = divmod(size, length)
    high, low, part = _range(r, "p", full), _range(r, "q", length), _range(r, "k", full + (rest > 0))
    whole = (*shared, high)
    pieces = [RangePiece(whole, (low,), whole, {symbol: high * length + low})] if full else []
    if rest:
        end = _range(r, "r", rest)
        pieces.append(RangePiece(shared, (end,), (*shared, full), {symbol: full * length + end}))
    return Cut(tuple(pieces), (*shared, part), dims.minimum(length, size - part * length))


def _range(r: Dim, name: str, size: Dim) -> Dim:
    return dims.symbol(f"{dims.as_symbol(r).name}.{name}", 0, size)


def _factor(size: Dim, wanted: int, near: bool) -> int:
    """The divisor of `size` nearest above `wanted`, or nearest; else the largest that leaves two; 1 where the size is
    not known."""
    if not isinstance(size, int):
        return 1
    divisors = [d for d in range(1, min(size // 2, 8 * wanted) + 1) if size % d == 0]
    above = next((d for d in divisors if d >= wanted), divisors[-1] if divisors else 1)
    below = max((d for d in divisors if d <= wanted), default=1)
    return below if near and below > 1 and wanted * wanted < above * below else above


def known(size: Dim) -> int:
    return size if isinstance(size, int) else SHORT
