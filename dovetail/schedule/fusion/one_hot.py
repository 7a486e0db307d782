"""Sums of which no more than one element differs from zero: the gradients of picking one class of many.

before:  loop k < n: s = sum(v if (l[i] == k) & c else 0)       loop k < n: out[i, k] = exp(x[i, k]) * s
after:   loop k < n: out[i, k] = exp(x[i, k]) * (v if (l[i] >= 0) & (l[i] < n) & c else 0)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.loops import Const, Expr, Index, Local, Loop, Op, Reduce, map_exprs, rewrite
from dovetail.ir.ranges import extent


def without_one_hot(loops: list[Loop]) -> list[Loop]:
    """The loops without such sums; what they come to stands where they are read."""
    known: dict[str, Expr] = {}

    def leaf(node: Expr) -> Expr | None:
        return known.get(node.name) if isinstance(node, Local) else None

    made = []
    for loop in loops:
        body = []
        for statement in loop.body:
            statement = map_exprs(statement, lambda expr: rewrite(expr, {}, {}, leaf)) if known else statement
            value = _one(statement, loop.inner) if isinstance(statement, Reduce) else None
            if value is None:
                body.append(statement)
            else:
                known[statement.name] = value  # type: ignore[union-attr]
        if body:
            made.append(Loop(loop.inner, tuple(body)))
    return made if known else loops


def _one(reduce: Reduce, inner: tuple[Dim, ...]) -> Expr | None:
    """The sum as one element, or None."""
    where, casts = reduce.value, []
    while isinstance(where, Op) and where.name == "cast":
        casts.append(where.dtype)
        where = where.args[0]
    if reduce.kind != "sum" or len(inner) != 1 or not isinstance(where, Op) or where.name != "where":
        return None
    condition, value, zero = where.args
    along = dims.as_symbol(inner[0])
    nothing = isinstance(zero, Const) and zero.value == 0
    if not nothing or reduce.value.dtype is not reduce.dtype or along in value.symbols:
        return None
    parts = list(_conjuncts(condition))
    places = [place for part in parts for place in [_place(part, along)] if place is not None]
    rest = [part for part in parts if along not in part.symbols]
    if len(places) != 1 or len(rest) != len(parts) - 1:
        return None
    size = extent(inner[0])
    end = Const(size, torch.int64) if isinstance(size, int) else Index(size)
    found = Op("lt", (places[0], end), torch.bool)
    for other in (Op("ge", (places[0], Const(0, torch.int64)), torch.bool), *rest):
        found = Op("and", (found, other), torch.bool)
    one: Expr = Op("where", (found, value, zero), where.dtype)
    for dtype in reversed(casts):
        one = Op("cast", (one,), dtype)
    return one


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Op) and condition.name == "and" and condition.dtype is torch.bool:
        for arg in condition.args:
            yield from _conjuncts(arg)
    else:
        yield condition


def _place(condition: Expr, along: Symbol) -> Expr | None:
    """What the range is equal to where the condition holds."""
    if not isinstance(condition, Op) or condition.name != "eq":
        return None
    for place, index in (condition.args, condition.args[::-1]):
        if isinstance(index, Index) and index.dim is dims.of_atom(along) and along not in place.symbols:
            return place
    return None
