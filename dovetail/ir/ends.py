"""Loops that come to an end before their ranges do.

    loop k < n:  s = sum(where(k < length[i], x[first[i] + k], 0))

adds nothing from `length[i]` on. What a loop means is said by its range; that it may stop earlier is for code generators.
"""

from __future__ import annotations

from dovetail.ir import dims
from dovetail.ir.loops import Const, Expr, Index, Loop, Op, Reduce


def end(loop: Loop) -> Expr | None:
    """An int64, the same all along the loop, from which on nothing is added."""
    found = {_end(statement, loop) for statement in loop.body}
    return found.pop() if len(loop.inner) == 1 and len(found) == 1 else None


def _end(statement: object, loop: Loop) -> Expr | None:
    if not isinstance(statement, Reduce) or statement.kind != "sum":
        return None
    match statement.value:
        case Op(name="where", args=(Op(name="lt", args=(Index(dim=dim), found)), _, Const(value=0))):
            alone = not found.symbols & {dims.as_symbol(r) for r in loop.inner}
            return found if alone and dim == loop.inner[-1] else None
    return None
