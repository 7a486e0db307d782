"""The table of operators: a row for each of which something is known beyond its schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from dovetail.ops.calls import collectives, library_rows
from dovetail.ops.lowering import (
    activation,
    arithmetic,
    comparison,
    convolutions,
    creation,
    elementary,
    gradients,
    indexing,
    movement,
    norm_gradients,
    normalization,
    pools,
    products,
    reduction,
    scans,
    scatter,
    softmax,
    upsampling,
    views,
)
from dovetail.ops.lowering.registry import Row
from dovetail.ops.own import collectives as halves
from dovetail.ops.own import philox, redraw, template, user_kernel

MODULES = (
    activation, arithmetic, collectives, comparison, convolutions, creation, elementary, gradients, halves, indexing,
    library_rows, movement, norm_gradients, normalization, philox, pools, products, redraw, reduction, scans, scatter,
    softmax, template, upsampling, user_kernel, views,
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
def functional_row(operator: Any) -> Row:
    """The row of an operator as fakes need it. Nothing is known of one that is made of others, and of one that writes
    to `out=` only what it refuses."""
    if not isinstance(operator, torch._ops.OpOverload) or is_composite(operator):
        return _NOTHING
    row = row_of(operator)
    return Row(refuses=row.refuses) if any(a.is_out for a in operator._schema.arguments) else row


@cache
def is_composite(operator: Any) -> bool:
    """Is the operator made of others?"""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")


@cache
def callee_of(operator: Any) -> Callable[..., Any]:
    """What to call for an operator, or for anything else that a graph calls."""
    callee: Callable[..., Any] = row_of(operator).callee or operator
    return callee
