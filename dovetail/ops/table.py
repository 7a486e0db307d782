"""The table of operators: a row for each of which something is known beyond its schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dovetail.ops.calls import library_rows
from dovetail.ops.lowering import (
    activation,
    arithmetic,
    comparison,
    creation,
    elementary,
    gradients,
    indexing,
    losses,
    movement,
    norm_gradients,
    normalization,
    products,
    reduction,
    scans,
    scatter,
    softmax,
    upsampling,
    views,
)
from dovetail.ops.lowering.registry import Row
from dovetail.ops.own import philox

MODULES = (
    activation, arithmetic, comparison, creation, elementary, gradients, indexing, library_rows, losses, movement,
    norm_gradients, normalization, philox, products, reduction, scans, scatter, softmax, upsampling, views,
)

ROWS: dict[str, Row] = {}
for _module in MODULES:
    assert not ROWS.keys() & _module.ROWS.keys(), "an operator has rows in two modules"
    ROWS.update(_module.ROWS)

_NOTHING = Row()


def row_of(operator: Any) -> Row:
    """What is known of an operator or a `Subprogram`: the overload's own row, else that of all its overloads."""
    schema = getattr(operator, "_schema", None)
    if schema is None:
        return _NOTHING
    return ROWS.get(operator._name) or ROWS.get(schema.name) or _NOTHING


@cache
def callee_of(operator: Any) -> Callable[..., Any]:
    """What to call for an operator, or for anything else that a graph calls."""
    callee: Callable[..., Any] = row_of(operator).callee or operator
    return callee
