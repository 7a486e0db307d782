"""Along which of a group's ranges memory lies: rows of an inner one, or columns, whose neighbours are outer indices."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.ranges import extent

Ranges = tuple[Dim, ...]


def along_columns(accesses: Iterable[tuple[Dim, Ranges]], outer: Ranges, unknown: int) -> bool:
    """Do more of the elements at these addresses, each in a loop over inner ranges, lie side by side along an outer
    range than along an inner one? `unknown`: what a size that is not known is taken for."""
    balance = 0
    for address, inner in accesses:
        if any(steps_by_one(address, r) for r in inner):
            balance -= _reached(address, (*outer, *inner), unknown)
        elif any(steps_by_one(address, r) for r in outer):
            balance += _reached(address, (*outer, *inner), unknown)
    return balance > 0


def steps_by_one(address: Dim, r: Dim) -> bool:
    return dims.coefficient(address, dims.as_symbol(r)) == 1


def _reached(address: Dim, ranges: Ranges, unknown: int) -> int:
    """How many elements, if each index of the ranges has one of its own."""
    count, symbols = 1, dims.symbols(address)
    for r in ranges:
        if dims.as_symbol(r) in symbols:
            size = extent(r)
            count *= size if isinstance(size, int) else unknown
    return count
