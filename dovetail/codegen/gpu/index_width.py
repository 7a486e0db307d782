"""How far a kernel's indices may reach, and so whether 32 bits hold them.

before:  x[s1*i + j] for i < s0, j < s1           sizes that are not known yet
after:   max(s0, 1)*s1 + max(s1, 1)               where that is below `NARROW`, 32 bits are enough

Of symbolic sizes this is a number that the host computes for each combination; which version of the kernel it starts
follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.codegen.common import ranges
from dovetail.codegen.gpu.plan import TilePlan
from dovetail.ir import dims
from dovetail.ir.dims import Atom, Dim, Symbol
from dovetail.ir.launch import NARROW
from dovetail.ir.loops import Group


def reach(group: Group, plan: TilePlan) -> Dim | None:
    """More than any index, and any part of one, comes to; None where nothing is known of it."""
    inner = (axis for axis in plan.inner if axis is not None)
    found: Dim = 0
    for dim in (*ranges.used_dims(group), *(axis.total for axis in (*plan.axes, *inner)), plan.programs):
        for part in (dim, *_divided(dim)):
            top = dims.bounds(part)[1]
            for above in _sums(part) if top is None else (top + 1,):
                if above is None:
                    return None
                found = dims.maximum(found, above)
    return found


def narrow(found: Dim | None) -> bool | None:
    """Are 32 bits enough? None: it depends on sizes."""
    if found is None:
        return False
    return found < NARROW if isinstance(found, int) else None


def _divided(dim: Dim) -> Iterator[Dim]:
    """What is divided inside it: more than the result."""
    for atom in (a for monomial, _ in dim.terms for a in monomial) if isinstance(dim, dims.Poly) else ():
        if isinstance(atom, dims.Binary):
            for side in (atom.left, atom.right):
                yield from (side, *_divided(side))


def _sums(dim: Dim) -> tuple[Dim | None, Dim | None]:
    """Above the sum of what is added, and above that of what is subtracted."""
    sums: list[Dim | None] = [0, 0]
    for monomial, coefficient in dim.terms if isinstance(dim, dims.Poly) else (((), dim),):
        product: Dim | None = abs(coefficient)
        for atom in monomial:
            top = _atom(atom)
            product = None if product is None or top is None else product * top
        before = sums[coefficient < 0]
        sums[coefficient < 0] = None if before is None or product is None else before + product
    return sums[0], sums[1]


def _atom(atom: Atom) -> Dim | None:
    """Not below the atom, which is not negative; nor below 1, so that factors of what is empty are in sight too."""
    if isinstance(atom, dims.Binary):
        return _binary(atom)
    if isinstance(atom, Symbol):
        return dims.maximum(dims.of_atom(atom) if atom.extent is None else atom.extent, 1)
    return None


def _binary(atom: dims.Binary) -> Dim | None:
    left, right = _sums(atom.left)[0], _sums(atom.right)[0]
    if left is None or right is None:
        return None
    known = isinstance(atom.right, int) or all(s.extent is None for s in dims.symbols(atom.right))
    if isinstance(atom, dims.FloorDiv) and known and not dims.has_values(atom.right):
        return dims.floordiv(left, atom.right) + 1
    if isinstance(atom, dims.Mod):
        return right
    return left + right if isinstance(atom, dims.Max) else left
