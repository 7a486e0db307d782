"""What a mask shows of a block of places, by the ends of the whole numbers in it: a few instructions a block.

    (i >= j) & (i - j < 256)    ->    some of it: (i_last >= j_first) & (i_first - j_last < 256), and all of it likewise

What differs from place to place and is no whole number made of places, as what tables say, may be anything. What is the
same for the block is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from dovetail.codegen.cpu import operators
from dovetail.codegen.cpu.attention.tiles import ScoreBlock
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.expressions import Expressions
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims
from dovetail.ir.attention import Scores
from dovetail.ir.dims import Atom, Dim, Symbol
from dovetail.ir.loops import Const, Expr, Index, Op
from dovetail.ir.records import dataclass

#: What is read from tables is taken for a number of so many bits; a block where one is longer is seen in part.
_BITS = 32
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Truth:
    """Is a condition true for some place, and for all? Where that is unknown, `some` says yes and `all` says no."""

    some: Val
    all: Val


@dataclass(frozen=True)
class IntegerRange:
    """A whole number from `low` to `high`, as i64; neither is further from 0 than `most`."""

    low: Val
    high: Val
    most: int


class BlockView:
    """`ends` are the first and the last of the places that differ in the block."""

    def __init__(self, em: Expressions, ends: Mapping[Symbol, tuple[Val, Val]]) -> None:
        self.em, self.w, self.ends = em, em.w, ends
        self.short: Val = em.w.const("true", "i1")  # has every number that was read no more than _BITS?

    @staticmethod
    def of(em: Expressions, scores: Scores, block: ScoreBlock) -> Truth:
        """What the mask shows of the block; nothing is known of a mask that needs checks."""
        w = em.w
        if scores.mask_checks:
            return Truth(w.const("true", "i1"), w.const("false", "i1"))
        ends = {}
        for place, first, count in zip(scores.places[2:], (block.i, block.j), (block.rows, block.keys), strict=True):
            last = w.binary("sub", w.binary("add", first, count), w.const(1, "i64"))
            ends[dims.as_symbol(place)] = first, last
        view = BlockView(em, ends)
        found = view.truth(scores.mask)
        return Truth(w.binary("or", found.some, w.invert(view.short)), w.both(found.all, view.short))

    # ------------------------------------------------------------ conditions

    def truth(self, expr: Expr) -> Truth:
        if self.alike(expr):
            value = self.em.value(expr)
            return Truth(value, value)
        rule = _CONDITIONS.get(expr.name) if isinstance(expr, Op) else None
        found = rule(self, *expr.children) if rule else None
        return found or Truth(self.w.const("true", "i1"), self.w.const("false", "i1"))

    def alike(self, expr: Expr) -> bool:
        """Is it the same for all places of the block, and safe to compute where others are not?"""
        return not expr.symbols & self.ends.keys() and not any(dims.has_values(d) for e in expr.loads for d in e.index)

    def joined(self, a: Expr, b: Expr, opcode: str) -> Truth | None:
        if a.dtype is not torch.bool:
            return None
        left, right = self.truth(a), self.truth(b)
        return Truth(self.w.binary(opcode, left.some, right.some), self.w.binary(opcode, left.all, right.all))

    def inverted(self, a: Expr) -> Truth | None:
        if a.dtype is not torch.bool:
            return None
        found = self.truth(a)
        return Truth(self.w.invert(found.all), self.w.invert(found.some))

    def ordered(self, a: Expr, b: Expr, predicate: str) -> Truth | None:
        """`a < b` or `a <= b`."""
        left, right = self.span(a), self.span(b)
        if left is None or right is None:
            return None
        opcode = f"icmp s{predicate}"
        return Truth(self.w.compare(opcode, left.low, right.high), self.w.compare(opcode, left.high, right.low))

    def equal(self, a: Expr, b: Expr) -> Truth | None:
        """Both at most and at least."""
        below, above = self.ordered(a, b, "le"), self.ordered(b, a, "le")
        if below is None or above is None:
            return None
        return Truth(self.w.both(below.some, above.some), self.w.both(below.all, above.all))

    def unequal(self, a: Expr, b: Expr) -> Truth | None:
        found = self.equal(a, b)
        return found and Truth(self.w.invert(found.all), self.w.invert(found.some))

    # ------------------------------------------------------------ whole numbers

    def span(self, expr: Expr) -> IntegerRange | None:
        """None also where a number may not fit into its type, and begins again at the other end."""
        kind = type_of(expr.dtype)
        if kind.kind not in ("int", "uint") or (kind.kind == "uint" and kind.bits == 64):
            return None
        if isinstance(expr, Const):
            return self.constant(int(expr.value))
        if self.alike(expr) and not isinstance(expr, Index):
            return self.exact(expr)
        found = self.of_dim(expr.dim) if isinstance(expr, Index) else self.computed(expr)
        return found if found and kind.kind == "int" and found.most < 1 << kind.bits - 1 else None

    def computed(self, expr: Expr) -> IntegerRange | None:
        rule = _NUMBERS.get(expr.name) if isinstance(expr, Op) else None
        return rule(self, *expr.children) if rule else None

    def constant(self, value: int) -> IntegerRange | None:
        number = self.w.const(value, "i64")
        return IntegerRange(number, number, abs(value)) if abs(value) <= _MOST else None

    def exact(self, expr: Expr) -> IntegerRange:
        value, kind = self.em.value(expr), type_of(expr.dtype)
        value = self.w.convert("sext" if kind.kind == "int" else "zext", value, "i64")
        if kind.bits > _BITS:
            half = self.w.binary("add", value, self.w.const(1 << _BITS, "i64"))
            self.short = self.w.both(self.short, self.w.compare("icmp ult", half, self.w.const(2 << _BITS, "i64")))
        return IntegerRange(value, value, 1 << min(kind.bits, _BITS))

    def added(self, a: Expr, b: Expr) -> IntegerRange | None:
        return self.plus(self.span(a), self.span(b))

    def plus(self, a: IntegerRange | None, b: IntegerRange | None) -> IntegerRange | None:
        if a is None or b is None or a.most + b.most > _MOST:
            return None
        low, high = (self.w.binary("add", x, y) for x, y in ((a.low, b.low), (a.high, b.high)))
        return IntegerRange(low, high, a.most + b.most)

    def times(self, a: IntegerRange | None, factor: int) -> IntegerRange | None:
        if a is None or a.most * abs(factor) > _MOST:
            return None
        ends = [self.w.binary("mul", end, self.w.const(factor, "i64")) for end in (a.low, a.high)]
        low, high = ends if factor >= 0 else ends[::-1]
        return IntegerRange(low, high, a.most * abs(factor))

    def subtracted(self, a: Expr, b: Expr) -> IntegerRange | None:
        return self.plus(self.span(a), self.times(self.span(b), -1))

    def multiplied(self, a: Expr, b: Expr) -> IntegerRange | None:
        for one, other in ((a, b), (b, a)):
            if isinstance(other, Const):
                return self.times(self.span(one), int(other.value))
        return None

    def divided(self, a: Expr, b: Expr) -> IntegerRange | None:
        return self.quotient(self.span(a), int(b.value)) if isinstance(b, Const) else None

    def quotient(self, a: IntegerRange | None, divisor: int) -> IntegerRange | None:
        """Rounded down."""
        if a is None or divisor <= 0:
            return None
        args = [(end, self.w.const(divisor, "i64")) for end in (a.low, a.high)]
        low, high = (operators.emit(self.w, "floordiv", torch.int64, torch.int64, pair) for pair in args)
        return IntegerRange(low, high, a.most)

    # ------------------------------------------------------------ what is made of places

    def of_dim(self, dim: Dim) -> IntegerRange | None:
        if isinstance(dim, int):
            return self.constant(dim)
        total: IntegerRange | None = self.constant(0)
        for monomial, factor in dim.terms:
            total = self.plus(total, self.times(self.of_atoms(monomial), factor))
        low, high = dims.bounds(dim)
        if total is None or low is None or high is None:
            return total
        return IntegerRange(total.low, total.high, min(total.most, max(abs(low), abs(high))))

    def of_atoms(self, monomial: tuple[Atom, ...]) -> IntegerRange | None:
        """A product; several factors are the same for the block, and so is the empty one."""
        whole = dims.product(map(dims.of_atom, monomial))
        if not dims.symbols(whole) & self.ends.keys():
            if dims.has_values(whole):
                return None
            return self.constant(whole) if isinstance(whole, int) else self.exact(Index(whole))
        return self.of_atom(monomial[0]) if len(monomial) == 1 else None

    def of_atom(self, atom: Atom) -> IntegerRange | None:
        if isinstance(atom, Symbol):
            return IntegerRange(*self.ends[atom], 1 << _BITS)
        if isinstance(atom, dims.FloorDiv) and isinstance(atom.right, int):
            return self.quotient(self.of_dim(atom.left), atom.right)
        return None


_CONDITIONS: dict[str, Callable[..., Truth | None]] = {
    "and": lambda view, a, b: view.joined(a, b, "and"),
    "or": lambda view, a, b: view.joined(a, b, "or"),
    "not": BlockView.inverted,
    "lt": lambda view, a, b: view.ordered(a, b, "lt"),
    "le": lambda view, a, b: view.ordered(a, b, "le"),
    "gt": lambda view, a, b: view.ordered(b, a, "lt"),
    "ge": lambda view, a, b: view.ordered(b, a, "le"),
    "eq": BlockView.equal,
    "ne": BlockView.unequal,
}
_NUMBERS: dict[str, Callable[..., IntegerRange | None]] = {
    "cast": BlockView.span,
    "add": BlockView.added,
    "sub": BlockView.subtracted,
    "mul": BlockView.multiplied,
    "floordiv": BlockView.divided,
}
