"""Instructions that compute Dims: as one number for the first lane, or one for each lane."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.codegen.common.signature import KernelSignature, split, static
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.ir import dims
from dovetail.ir.dims import Atom, Dim, Symbol
from dovetail.ir.loops import Expr, value_exprs


class Indices:
    """`bound` gives each live range symbol's value; for `vector`, that of the first lane.

    `of_value` computes a run-time index's expression.
    """

    def __init__(self, w: Lanes, signature: KernelSignature, of_value: Callable[[Expr], Val]) -> None:
        self.w, self.b, self.signature, self.of_value = w, w.b, signature, of_value
        self.bound: dict[Symbol, Val] = {}
        self.vector: Symbol | None = None
        self.lanes = 1

    # ------------------------------------------------------------ sizes

    def term(self, dim: Dim) -> Val:
        return Val(self.signature.term(dim), "i64", 1, 0)

    def factor(self, dim: Dim) -> Val:
        return Val(self.signature.factor(dim), "i64", 1, 0)

    def extent(self, dim: Dim) -> Val:
        return Val(self.signature.extent(dim), "i64", 1, 0)

    # ------------------------------------------------------------ values

    def varies(self, dim: Dim) -> bool:
        return self.vector is not None and (self.vector in dims.symbols(dim) or self._found(dim))

    def _found(self, dim: Dim) -> bool:
        """Is a part of it what every lane has found out for itself, as the place of its row's largest element?"""
        return any(self.of_value(expr).lanes > 1 for expr in value_exprs((dim,)))

    def step(self, dim: Dim) -> Dim | None:
        """How much `dim` grows from lane to lane; None when not by a constant."""
        if self.vector is None:
            return 0
        step = dims.coefficient(dim, self.vector)
        return None if step is None or self.vector in dims.symbols(step) or self._found(dim) else step

    def first(self, dim: Dim) -> Val:
        """The value in the first lane."""
        return self._sum(dim, lambda atom: self._atom(atom, self.first))

    def each(self, dim: Dim) -> Val:
        """The value in every lane; uniform when it is the same in all."""
        if not self.varies(dim):
            return self.first(dim)
        step = self.step(dim)
        if step is None:
            return self._sum(dim, self._lane_atom)
        return self.w.binary("add", self.ramp(step, narrow=False), self.first(dim))

    def each_short(self, dim: Dim) -> Val:
        """The low 32 bits of the value in every lane."""
        step = self.step(dim)
        if not self.varies(dim) or not isinstance(step, int) or abs(step) * self.lanes >= 2**31:
            return self.w.convert("trunc", self.each(dim), "i32")
        return self.w.binary("add", self.ramp(step), self.w.convert("trunc", self.first(dim), "i32"))

    def ramp(self, step: Dim, narrow: bool = True) -> Val:
        """0, step, 2*step, ... in the lanes; as i32 when `narrow` and that is known to be enough."""
        size = self.factor(step) if static(step) else self.first(step)
        low, high = dims.bounds(step)
        if narrow and low is not None and high is not None and max(-low, high) * self.lanes < 2**31:
            size = self.w.convert("trunc", size, "i32") if size.text.startswith("%") else self.w.const(size.text, "i32")
            return self.w.binary("mul", self.w.splat(size, self.lanes), self.iota("i32"))
        return self.w.binary("mul", self.w.splat(size, self.lanes), self.iota())

    def iota(self, element: str = "i64") -> Val:
        inside = ", ".join(f"{element} {k}" for k in range(self.lanes))
        return Val(f"<{inside}>", element, self.lanes, 0)

    def _sum(self, dim: Dim, of_atom: Callable[[Atom], Val]) -> Val:
        """Terms of outer scopes are added up first, so that their sum is hoisted."""
        terms = []
        for monomial, size in split(dim):
            if not monomial:
                terms.append(self.term(size))
                continue
            product = None if size == 1 else self.factor(size)
            for atom in sorted((of_atom(a) for a in monomial), key=lambda v: v.depth):
                product = atom if product is None else self.w.binary("mul", product, atom)
            assert product is not None
            terms.append(product)
        terms.sort(key=lambda v: (v.lanes, v.depth))
        total = terms[0]
        for term in terms[1:]:
            total = self.w.binary("add", total, term)
        return total

    def _lane_atom(self, atom: Atom) -> Val:
        if atom is self.vector:
            return self.w.binary("add", self.w.splat(self.bound[self.vector], self.lanes), self.iota())
        return self._atom(atom, self.each)

    def _atom(self, atom: Atom, operand: Callable[[Dim], Val]) -> Val:
        if isinstance(atom, Symbol):
            return self.bound[atom]
        if isinstance(atom, dims.RuntimeIndex):
            return self.of_value(atom.expr)
        assert isinstance(atom, dims.Binary)
        which = _BINARY[type(atom)]
        if which in ("min", "max"):
            return self.w.minmax(which, operand(atom.left), operand(atom.right), "int")
        return self._quotient(atom, operand, which)

    def _quotient(self, atom: dims.Binary, operand: Callable[[Dim], Val], which: str) -> Val:
        """Floor division or modulo by a positive number; 32 bits where they are known to do."""
        w, left, divisor = self.w, operand(atom.left), atom.right
        right = w.const(divisor, "i64") if isinstance(divisor, int) else operand(divisor)
        if not dims.known_less(0, divisor):  # an empty dimension, whose elements some mask leaves out
            right = w.minmax("max", right, w.const(1, "i64"), "int")
        if dims.known_nonnegative(atom.left):
            top = dims.bounds(atom.left)[1]
            small = top is not None and top < 2**31 and isinstance(divisor, int) and divisor < 2**31
            if left.lanes > 1 and small:
                narrow = w.binary(f"u{which}", w.convert("trunc", left, "i32"), w.const(str(divisor), "i32"))
                return w.convert("zext", narrow, "i64")
            return w.binary(f"u{which}", left, right)
        rest = w.binary("srem", left, right)
        negative = w.compare("icmp slt", rest, w.const(0, "i64"))
        if which == "rem":
            return w.select(negative, w.binary("add", rest, right), rest)
        quotient = w.binary("sdiv", left, right)
        return w.select(negative, w.binary("sub", quotient, w.const(1, "i64")), quotient)


_BINARY: dict[type, str] = {
    dims.FloorDiv: "div", dims.Mod: "rem", dims.Min: "min", dims.Max: "max",
}
