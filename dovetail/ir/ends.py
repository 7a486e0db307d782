"""Loops that come to an end before their ranges do.

    loop k < n:  s = sum(where(k < length[i], x[first[i] + k], 0))

adds nothing from `length[i]` on. What a loop means is said by its range; that it may stop earlier is for code
generators.
"""

from __future__ import annotations

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const, Expr, Index, Loop, Op, Reduce


def end(loop: Loop) -> Expr | None:
    """An int64, the same all along the loop, from which on nothing is added."""
    if len(loop.inner) != 1:
        return None
    found = {_end(statement, loop.inner[0]) for statement in loop.body}
    return found.pop() if len(found) == 1 else None


def _end(statement: object, k: Dim) -> Expr | None:
    if not isinstance(statement, Reduce) or statement.kind != "sum":
        return None
    match statement.value:
        case Op(name="where", args=(Op(name="lt", args=(Index(dim=dim), found)), _, Const(value=0))):
            return found if dim == k and dims.as_symbol(k) not in found.symbols else None
    return None
