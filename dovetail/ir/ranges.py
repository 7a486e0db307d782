"""Loop ranges: symbols that count from 0."""

from __future__ import annotations

from dovetail.ir import dims
from dovetail.ir.dims import Dim


def new_range(name: str, extent: Dim) -> Dim:
    """A range symbol `0 <= name < extent`."""
    return dims.symbol(name, 0, extent)


def extent(of: Dim) -> Dim:
    """The extent of a range made by `new_range`."""
    result = dims.as_symbol(of).extent
    assert result is not None
    return result
