"""What inlining brings together often cancels.

before:  cast_f32(cast_bf16(x))          where(index(i) < 0, index(i) + 64, index(i))     t[value(index(i)), j]
after:   x                               index(i)                                         t[i, j]

The first keeps what rounding would lose and is left alone when rounding must follow eager's, or the program asked for
it (`rounded`); the others are exact. A check whose condition is known to hold disappears with its group.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Check, Const, Expr, Group, Index, Item, Load, Loop, Op, Reduce, Statement, Store

_HALF = (torch.bfloat16, torch.float16)
_SUM: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}
#: comparison -> (what is nonnegative when it holds, what is nonnegative when it does not)
_COMPARISONS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[Dim, Dim], Dim]]] = {
    "lt": (lambda a, b: b - a - 1, lambda a, b: a - b),
    "le": (lambda a, b: b - a, lambda a, b: a - b - 1),
    "gt": (lambda a, b: a - b - 1, lambda a, b: b - a),
    "ge": (lambda a, b: a - b, lambda a, b: b - a - 1),
}

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}  # of integers: NaN compares false both ways


class Simplifier:
    """One memo for many groups; `exact_rounding` keeps conversions to shorter types and back."""

    def __init__(self, exact_rounding: bool) -> None:
        self.exact = exact_rounding
        self.memo: dict[Expr, Expr] = {}

    def item(self, item: Item) -> Item | None:
        """None for a group of which nothing is left."""
        if not isinstance(item, Group):
            return item
        loops, same = [], True
        for loop in item.loops:
            found = [self.statement(s) for s in loop.body]
            same = same and all(s is old for s, old in zip(found, loop.body, strict=True))
            body = tuple(s for s in found if s is not None)
            if body:
                loops.append(Loop(loop.inner, body))
        if same and loops:
            return item
        return Group(item.name, item.outer, tuple(loops), item.locals) if loops else None

    def statement(self, statement: Statement) -> Statement | None:
        if isinstance(statement, Store):
            index, value = tuple(map(self.dim, statement.index)), self.expr(statement.value)
            if value is statement.value and all(map(operator.is_, index, statement.index)):
                return statement
            return replace(statement, index=index, value=value)
        if isinstance(statement, Reduce):
            value = self.expr(statement.value)
            return statement if value is statement.value else replace(statement, value=value)
        condition = self.expr(statement.condition)
        holds = isinstance(condition, Const) and condition.value
        return None if holds else Check(condition, statement.message)

    def expr(self, expr: Expr) -> Expr:
        done = self.memo.get(expr)
        if done is None:
            done = self.memo[expr] = self.rebuilt(expr)
        return done

    def rebuilt(self, expr: Expr) -> Expr:
        if isinstance(expr, Load):
            mask = None if expr.mask is None else self.expr(expr.mask)
            if isinstance(mask, Const):
                mask = None if mask.value else mask
            return Load(expr.buffer, tuple(map(self.dim, expr.index)), mask)
        if isinstance(expr, Index):
            dim = self.dim(expr.dim)
            return Const(dim, torch.int64) if isinstance(dim, int) else Index(dim)
        if not isinstance(expr, Op):
            return expr
        args = tuple(map(self.expr, expr.args))
        return self.op(expr, args)

    def dim(self, dim: Dim) -> Dim:
        """Run-time values that turn out to be plain indices take part in the algebra."""
        if isinstance(dim, int):
            return dim
        atoms = (a for m, _ in dim.terms for a in m)
        if not any(isinstance(a, (dims.RuntimeIndex, dims.Binary)) for a in atoms):
            return dim
        return dims.substitute(dim, {}, self.expr)

    def op(self, expr: Op, args: tuple[Expr, ...]) -> Expr:
        rule = _RULES.get(expr.name)
        found = rule(self, expr, args) if rule is not None else None
        if found is not None:
            return found
        return expr if args == expr.args else Op(expr.name, args, expr.dtype)

    def cast(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        (inner,) = args
        if inner.dtype is expr.dtype:
            return inner
        if self.exact or not isinstance(inner, Op) or inner.name != "cast" or inner.dtype not in _HALF:
            return None
        (original,) = inner.args
        wide = expr.dtype in (torch.float32, torch.float64)
        return original if wide and original.dtype is expr.dtype else None

    def arithmetic(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        a, b = map(_as_dim, args)
        if a is None or b is None or expr.dtype is not torch.int64:
            return None
        dim = _SUM[expr.name](a, b)
        return Const(dim, torch.int64) if isinstance(dim, int) else Index(dim)

    def compare(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        a, b = map(_as_dim, args)
        if a is None or b is None:
            return None
        holds, fails = _COMPARISONS[expr.name]
        if dims.known_nonnegative(holds(a, b)):
            return Const(True, torch.bool)
        return Const(False, torch.bool) if dims.known_nonnegative(fails(a, b)) else None

    def select(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        condition, yes, no = args
        if isinstance(condition, Const):
            return yes if condition.value else no
        return yes if yes is no else None

    def negate(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        (inner,) = args
        if isinstance(inner, Const) and expr.dtype is torch.bool:
            return Const(not inner.value, torch.bool)
        opposite = _OPPOSITE.get(inner.name) if isinstance(inner, Op) else None
        whole = isinstance(inner, Op) and all(not a.dtype.is_floating_point for a in inner.args)
        return Op(opposite, inner.args, torch.bool) if opposite and whole else None  # type: ignore[attr-defined]

    def logic(self, expr: Op, args: tuple[Expr, ...]) -> Expr | None:
        if expr.dtype is not torch.bool:
            return None
        neutral = expr.name == "and"
        for this, other in (args, args[::-1]):
            if isinstance(this, Const):
                return other if bool(this.value) is neutral else this
        return None


_RULES: dict[str, Callable[[Simplifier, Op, tuple[Expr, ...]], Expr | None]] = {
    "cast": Simplifier.cast, "where": Simplifier.select, "not": Simplifier.negate,
    "and": Simplifier.logic, "or": Simplifier.logic,
    **dict.fromkeys(_SUM, Simplifier.arithmetic), **dict.fromkeys(_COMPARISONS, Simplifier.compare),
}


def _as_dim(expr: Expr) -> Dim | None:
    """The integer expression that an int64 constant or index is."""
    if isinstance(expr, Index):
        return expr.dim
    if isinstance(expr, Const) and expr.dtype is torch.int64:
        return int(expr.value)
    return None
