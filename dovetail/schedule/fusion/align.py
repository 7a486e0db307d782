"""Make two iteration spaces agree, given that both walk the same memory.

before:  a walks 24*i + 6*j + k   (i<B, j<4, k<6);   b walks 6*m + n   (m<4*B, n<6)
after:   a's j, k kept; b's m -> 4*i + j, n -> k

Both positions must be affine in their ranges. The ranges are matched from the smallest
coefficient upwards; where one is larger than its partner it is split in two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import count
from typing import Any

from dovetail.ir import dims, dimvalues
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.ranges import new_range
from dovetail.ir.records import dataclass


class Names:
    """Names of ranges and reductions used nowhere else in one program."""

    def __init__(self) -> None:
        self.numbers = count()

    def range(self, extent: Dim) -> Dim:
        return new_range(f"x{next(self.numbers)}", extent)

    def local(self) -> str:
        return f"r{next(self.numbers)}"


@dataclass(slots=True)
class Alignment:
    """`a`, `b`: what each side's ranges become; `shared`: the common ranges, slowest first.

    A range that is missing from `a` or `b` stays as it was.
    """

    a: dict[Symbol, Dim] = field(default_factory=dict)
    b: dict[Symbol, Dim] = field(default_factory=dict)
    shared: list[Dim] = field(default_factory=list)
    images_a: dict[Symbol, list[Dim]] = field(default_factory=dict)
    images_b: dict[Symbol, list[Dim]] = field(default_factory=dict)


@dataclass(slots=True)
class _Piece:
    """A range or the upper part of one that is being split: stride, extent, parts so far."""

    stride: Dim
    extent: Dim
    of: Symbol
    low: list[tuple[Dim, Dim]] = field(default_factory=list)  # (new range, multiplier)
    reach: Dim = 1  # product of the extents already split off


def pieces(position: Dim, ranges: Iterable[Symbol]) -> list[_Piece] | None:
    """The ranges that move `position`, smallest step first; None if it is not affine in them."""
    found = []
    for symbol in ranges:
        step = dims.coefficient(position, symbol)
        if step is None:
            return None
        if step != 0 and symbol.extent != 1:
            found.append(_Piece(step, symbol.extent, symbol))  # type: ignore[arg-type]
    if not all(p.stride > 0 if isinstance(p.stride, int) else dims.known_nonnegative(p.stride) for p in found):
        return None
    return sorted(found, key=lambda p: dimvalues.typical(p.stride))


def align(
    a: Dim, a_ranges: Iterable[Symbol], b: Dim, b_ranges: Iterable[Symbol], names: Names
) -> Alignment | None:
    """Match ranges from the inside out; stops where either side runs out. None: no match."""
    left, right = pieces(a, a_ranges), pieces(b, b_ranges)
    if left is None or right is None:
        return None
    result = Alignment()
    while left and right:
        p, q = left[0], right[0]
        if p.stride != q.stride or not _match(result, left, right, names):
            return None
    if any(piece.low for piece in (*left[:1], *right[:1])):
        return None  # half of a split range would be left over
    result.shared.reverse()
    return result


def _match(result: Alignment, left: list[_Piece], right: list[_Piece], names: Names) -> bool:
    p, q = left[0], right[0]
    if p.extent != q.extent and not _divides(p.extent, q.extent) and not _divides(q.extent, p.extent):
        return False
    extent = p.extent if p.extent == q.extent or _divides(p.extent, q.extent) else q.extent
    whole = not p.low and p.extent == extent
    shared = dims.symbol(p.of.name, 0, extent) if whole else names.range(extent)
    result.shared.append(shared)
    _consume(p, shared, extent, left, result.a, result.images_a)
    _consume(q, shared, extent, right, result.b, result.images_b)
    return True


def _consume(
    piece: _Piece, shared: Dim, extent: Dim, queue: list[_Piece], mapping: dict[Symbol, Dim], images: Any
) -> None:
    """Give the low part of `piece` to the range `shared`; drop it from the queue when nothing is left."""
    piece.low.append((shared, piece.reach))
    piece.reach = piece.reach * extent
    piece.stride = piece.stride * extent
    piece.extent = dims.floordiv(piece.extent, extent)
    if piece.extent != 1:
        return
    queue.pop(0)
    mapping[piece.of] = sum((part * by for part, by in piece.low), start=0)
    images[piece.of] = [part for part, _ in reversed(piece.low)]


def _divides(small: Dim, large: Dim) -> bool:
    if isinstance(small, int) and isinstance(large, int):
        return 0 < small < large and large % small == 0
    quotient = dims.floordiv(large, small)
    return small != large and quotient * small == large
