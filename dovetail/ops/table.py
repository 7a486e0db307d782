"""The table of lowerings: every operator that becomes loops."""

from __future__ import annotations

from dovetail.ops import (
    activation,
    arithmetic,
    comparison,
    creation,
    elementary,
    indexing,
    movement,
    normalization,
    reduction,
    softmax,
    views,
)
from dovetail.ops.registry import Lowering, Rows

_MODULES = (
    activation, arithmetic, comparison, creation, elementary, indexing, movement, normalization, reduction, softmax,
    views,
)

LOWERINGS: dict[str, Lowering] = {}
for _module in _MODULES:
    assert not LOWERINGS.keys() & _module.ROWS.keys(), "an operator has rows in two modules"
    LOWERINGS.update(_module.ROWS)

#: Rows that only change indices: they hold for every dtype.
VIEWS: Rows = views.ROWS
