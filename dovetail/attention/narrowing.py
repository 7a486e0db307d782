"""Whole numbers of 64 bits in 32 where they fit: a place and what is computed of places.

    index(i) >= index(j)    ->    int32(index(i)) >= int32(index(j))
"""

from __future__ import annotations

import torch

from dovetail.ir import dims
from dovetail.ir.loops import Const, Expr, Index, Load, Op

_COMPARED = frozenset("eq ne lt le gt ge".split())
#: What these give is no larger than what they are given.
_SHRINKING = frozenset("floordiv truncdiv remainder fmod min max abs".split())
_MOST = (1 << 31) - 1


class Narrowing:
    """One memo for many expressions."""

    def __init__(self) -> None:
        self.memo: dict[Expr, Expr] = {}

    def expr(self, expr: Expr) -> Expr:
        """The same value, of the same type."""
        found = self.memo.get(expr)
        if found is None:
            found = self.memo[expr] = self.rebuilt(expr)
        return found

    def rebuilt(self, expr: Expr) -> Expr:
        if isinstance(expr, Load):
            index = tuple(d if isinstance(d, int) else dims.substitute(d, {}, self.expr) for d in expr.index)
            return Load(expr.buffer, index, None if expr.mask is None else self.expr(expr.mask))
        if not isinstance(expr, Op):
            return expr
        if expr.name in _COMPARED or expr.name == "cast":
            short = [self.short(a) if a.dtype is torch.int64 else None for a in expr.args]
            if all(a is not None for a in short):
                return Op(expr.name, tuple(short), expr.dtype)  # type: ignore[arg-type]
        return Op(expr.name, tuple(map(self.expr, expr.args)), expr.dtype)

    def short(self, expr: Expr) -> Expr | None:
        """An int64 as an int32; None if it may not fit."""
        if isinstance(expr, Const):
            return Const(expr.value, torch.int32) if abs(expr.value) <= _MOST else None
        if isinstance(expr, Index):
            low, high = dims.bounds(expr.dim)
            fits = low is not None and high is not None and low >= -_MOST and high <= _MOST
            return Op("cast", (expr,), torch.int32) if fits else None
        if isinstance(expr, Op) and expr.name == "cast" and expr.args[0].dtype is torch.int32:
            return self.expr(expr.args[0])
        if isinstance(expr, Op) and expr.name in _SHRINKING:
            args = list(map(self.short, expr.args))
            return None if None in args else Op(expr.name, tuple(args), torch.int32)  # type: ignore[arg-type]
        return None
