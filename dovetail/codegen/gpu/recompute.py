"""Rows that do not fit into registers: what is kept in one is computed again where it is read.

before:  loop r: b2[r] = v = f(x[r]); s = sum(v)      loop r: out[r] = b2[r] / s
after:   loop r: s = sum(f(x[r]))                     loop r: out[r] = f(x[r]) / s
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr, Group, Load, Loop, Statement, Store, map_exprs, rewrite


def without_rows(group: Group) -> Group:
    """The group without local buffers. Its buffers are flat."""
    if not group.locals:
        return group
    names = {b.name for b in group.locals}
    stored: dict[str, tuple[tuple[Dim, ...], Dim, Expr]] = {}  # ranges, address and value of each row's element
    loops = []
    for loop in group.loops:
        body: list[Statement] = []
        for statement in loop.body:
            made = map_exprs(statement, lambda expr: _expanded(expr, stored))
            if isinstance(made, Store) and made.buffer.name in names:
                stored[made.buffer.name] = loop.inner, made.index[0], made.value
            else:
                body.append(made)
        if body:
            loops.append(Loop(loop.inner, tuple(body)))
    return replace(group, loops=tuple(loops), locals=())


def _expanded(expr: Expr, stored: dict[str, tuple[tuple[Dim, ...], Dim, Expr]]) -> Expr:
    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in stored:
            return None
        ranges, _, value = stored[node.buffer.name]
        mapping = dict(zip(map(dims.as_symbol, ranges), digits(node.index[0], ranges), strict=True))
        return rewrite(value, mapping, {})

    return rewrite(expr, {}, {}, leaf)


def digits(place: Dim, ranges: tuple[Dim, ...]) -> list[Dim]:
    """The indices along `ranges` of a row-major place."""
    found: list[Dim] = []
    for r in reversed(ranges):
        extent = dims.as_symbol(r).extent
        assert extent is not None
        found.append(dims.mod(place, extent) if len(found) < len(ranges) - 1 else place)
        place = dims.floordiv(place, extent)
    return found[::-1]
