"""How a Dim is written: common factors, remainders, a quotient or an excess alone. For the facts about sizes."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

from dovetail.ir.dims import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Poly,
    _atom_dim,
    _from_terms,
    _monomial_dim,
    _remove,
    _sole_atom,
    _terms,
    known_nonnegative,
)


def content(dim: Poly) -> tuple[int, int]:
    """(the greatest common divisor of all coefficients but the constant's, the constant)."""
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    return gcd(*terms.values()), constant


def factors(dim: Dim) -> list[Dim]:
    """The atoms whose product `dim` is; nothing where it is none."""
    if isinstance(dim, int) or len(dim.terms) > 1 or dim.terms[0][1] != 1:
        return []
    return list(map(_atom_dim, dict.fromkeys(dim.terms[0][0])))


def common_factors(dim: Poly) -> tuple[list[Dim], Dim]:
    """Atoms that every term of `dim` has, and what they multiply."""
    first, *others = (monomial for monomial, _ in dim.terms)
    shared: list[Atom] = []
    for atom in first if others else ():
        if all(m.count(atom) > shared.count(atom) for m in others):
            shared.append(atom)
    rest = {_remove(monomial, tuple(shared)): c for monomial, c in dim.terms}
    return list(map(_atom_dim, shared)), _from_terms(rest) if shared else dim  # type: ignore[arg-type]


def multiples(dim: Poly, of: Poly) -> Iterator[Dim]:
    """Nonnegative factors, other than 1, by which `of` has a term in common with `dim`."""
    monomial, coefficient = of.terms[0]
    for mine, c in dim.terms:
        left, times = _remove(mine, monomial), c // coefficient
        if left is not None and times > 0 and (left or times > 1):
            factor = _monomial_dim(left) * times
            if known_nonnegative(factor):
                yield factor


def quotient(dim: Poly) -> Dim | None:
    """a - n*b where `dim` is a // b - n: both are nonnegative or none is."""
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    atom = _sole_atom(_from_terms(terms))
    return atom.left + atom.right * constant if isinstance(atom, FloorDiv) else None


def excess(dim: Dim) -> Dim | None:
    """d where `dim` is max(d, 0)."""
    atom = _sole_atom(dim)
    if isinstance(atom, Max) and 0 in (atom.left, atom.right):
        return atom.right if atom.left == 0 else atom.left
    return None


def bounded(dim: Poly) -> tuple[Dim, ...]:
    """(a + d, b + d) where `dim` is min(a, b) + d, (d - a, d - b) where it is d - max(a, b): all are nonnegative or it
    is not."""
    for monomial, coefficient in dim.terms:
        atom: Any = monomial[0] if len(monomial) == 1 else None
        if (type(atom), coefficient) in ((Min, 1), (Max, -1)):
            rest = dim - _atom_dim(atom) * coefficient
            return rest + atom.left * coefficient, rest + atom.right * coefficient
    return ()


def has_remainder(dim: Dim) -> bool:
    """Is what a division leaves one of its terms?"""
    return any(isinstance(atom, Mod) for monomial, _ in _terms(dim) for atom in monomial)
