"""The kernel's arguments: which buffers, sizes and numbers its text refers to, in order of first use; and its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from dovetail.ir import dims
from dovetail.ir.dims import Atom, Binary, Dim, Monomial, RuntimeIndex, Symbol
from dovetail.ir.liveness import statement_roots
from dovetail.ir.loops import Check, Expr, Group, Op, Reduce, Store

#: Integers that stay literals: offsets of stencils, and factors that cost one instruction.
_LITERAL_TERMS = range(-8, 9)
_LITERAL_FACTORS = frozenset((-1, 0, 1, 2))


class KernelSignature:
    """Names `%p0, %p1, ...` for buffers and `%n0, %n1, ...` for sizes, numbers and what else is known of them."""

    def __init__(self) -> None:
        self.pointers: dict[str, int] = {}
        self.sizes: dict[Any, int] = {}

    def pointer(self, buffer: str) -> str:
        return f"%p{self.pointers.setdefault(buffer, len(self.pointers))}"

    def size(self, dim: Dim) -> str:
        return self.number(dim)

    def number(self, number: Any) -> str:
        return f"%n{self.sizes.setdefault(number, len(self.sizes))}"

    def term(self, dim: Dim) -> str:
        """A summand: small ints stay literals."""
        return str(dim) if isinstance(dim, int) and dim in _LITERAL_TERMS else self.size(dim)

    def factor(self, dim: Dim) -> str:
        return str(dim) if isinstance(dim, int) and dim in _LITERAL_FACTORS else self.size(dim)

    def extent(self, dim: Dim) -> str:
        """A trip count; 0 and 1 stay literals, as they change what the code may do."""
        return str(dim) if isinstance(dim, int) and dim < 2 else self.size(dim)


def is_size(atom: Atom) -> bool:
    """Known before the kernel starts: made of sizes only."""
    if isinstance(atom, Symbol):
        return atom.extent is None
    if isinstance(atom, RuntimeIndex):
        return False
    assert isinstance(atom, Binary)
    return static(atom.left) and static(atom.right)


def static(dim: Dim) -> bool:
    return isinstance(dim, int) or all(is_size(a) for m, _ in dim.terms for a in m)


def split(dim: Dim) -> list[tuple[Monomial, Dim]]:
    """`dim` as a sum of products: run-time atoms, and the size that multiplies them."""
    if isinstance(dim, int):
        return [((), dim)]
    found: dict[Monomial, Dim] = {}
    for monomial, coefficient in dim.terms:
        varying = tuple(a for a in monomial if not is_size(a))
        sizes: Dim = coefficient
        for atom in monomial:
            if is_size(atom):
                sizes = sizes * dims.of_atom(atom)
        found[varying] = found.get(varying, 0) + sizes
    return list(found.items())


# ---------------------------------------------------------------- names

MOST = 6  # operators in a name
#: Left out of names: they choose, convert and compare what others compute.
SILENT = frozenset(
    "where cast rounded bitcast eq ne lt le gt ge and or xor not shl shr isnan isinf signbit".split()
)


def kernel_symbol(group: Group, text: str) -> str:
    """The name of the kernel of `group`, whose digest is that of `text`: what it computes first comes first.

    Profiles and stack traces show it: `k_max_sub_exp_sum_div_6bfaf557fde1b3d9` is a softmax.
    """
    words = list(dict.fromkeys(_words(group)))
    shown = words[:MOST] + ["and_more"] * (len(words) > MOST)
    return "_".join(["k", *(shown or ["copy"]), hashlib.sha256(text.encode()).hexdigest()[:16]])


def _words(group: Group) -> Iterator[str]:
    seen: set[Expr] = set()
    for statement in group.statements():
        for root in statement_roots(statement):
            yield from _operators(root, seen)
        if isinstance(statement, Reduce):
            yield statement.kind
        elif isinstance(statement, Store) and statement.scan:
            yield f"cum{statement.scan}"
        elif isinstance(statement, Check):
            yield "check"


def _operators(root: Expr, seen: set[Expr]) -> Iterator[str]:
    """Those of an expression, arguments first."""
    waiting = [(root, False)]
    while waiting:
        expr, done = waiting.pop()
        if done:
            if isinstance(expr, Op) and expr.name not in SILENT:
                yield expr.name
        elif expr not in seen:
            seen.add(expr)
            waiting.append((expr, True))
            waiting += [(part, False) for part in reversed(expr.parts)]
