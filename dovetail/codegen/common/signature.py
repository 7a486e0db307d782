"""The kernel's arguments: which buffers, sizes and numbers its text refers to, in order of first use."""

from __future__ import annotations

from typing import Any

from dovetail.ir import dims
from dovetail.ir.dims import Atom, Binary, Dim, Monomial, RuntimeIndex, Symbol

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
        return f"%n{self.sizes.setdefault(dim, len(self.sizes))}"

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
                sizes = sizes * _as_dim(atom)
        found[varying] = found.get(varying, 0) + sizes
    return list(found.items())


def _as_dim(atom: Atom) -> Dim:
    return dims._atom_dim(atom)


