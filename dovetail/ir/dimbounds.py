"""Between which numbers a Dim lies, by the bounds of its symbols alone: interval arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.dimatoms import Atom, Binary, FloorDiv, Min, Mod, Monomial, RuntimeIndex, Symbol, cached

if TYPE_CHECKING:
    from dovetail.ir.dims import Dim, Poly

Bound = int | None  # None: unbounded on that side


def bounds(dim: Dim) -> tuple[Bound, Bound]:
    """Inclusive interval; None means unbounded."""
    if isinstance(dim, int):
        return dim, dim
    return _poly_bounds(dim)


@cached
def _poly_bounds(dim: Poly) -> tuple[Bound, Bound]:
    lo: Bound = 0
    hi: Bound = 0
    for monomial, coefficient in dim.terms:
        mlo, mhi = _monomial_bounds(monomial)
        if coefficient < 0:
            mlo, mhi = mhi, mlo
        lo = None if lo is None or mlo is None else lo + coefficient * mlo
        hi = None if hi is None or mhi is None else hi + coefficient * mhi
    return lo, hi


def _monomial_bounds(monomial: Monomial) -> tuple[Bound, Bound]:
    lo: Bound = 1
    hi: Bound = 1
    for atom in monomial:
        alo, ahi = _atom_bounds(atom)
        if alo is None or alo < 0 or lo is None:
            return (None, None) if len(monomial) > 1 else (alo, ahi)
        lo = lo * alo
        hi = None if hi is None or ahi is None else hi * ahi
    return lo, hi


def _atom_bounds(atom: Atom) -> tuple[Bound, Bound]:
    if isinstance(atom, (Symbol, RuntimeIndex)):
        top = bounds(atom.extent)[1] if atom.extent is not None else None
        lo = atom.lo if isinstance(atom, Symbol) else None if atom.extent is None else 0
        return lo, None if top is None else top - 1
    assert isinstance(atom, Binary)
    (llo, lhi), (rlo, rhi) = bounds(atom.left), bounds(atom.right)
    if isinstance(atom, Mod):
        return 0, None if rhi is None else rhi - 1
    if isinstance(atom, FloorDiv):
        return _floordiv_bounds(llo, lhi, rlo, rhi)
    if isinstance(atom, Min):
        known = [h for h in (lhi, rhi) if h is not None]
        return (None if llo is None or rlo is None else min(llo, rlo)), min(known, default=None)
    known = [b for b in (llo, rlo) if b is not None]
    return max(known, default=None), (None if lhi is None or rhi is None else max(lhi, rhi))


def _floordiv_bounds(llo: Bound, lhi: Bound, rlo: Bound, rhi: Bound) -> tuple[Bound, Bound]:
    least = max(rlo or 1, 1)
    if llo is not None and llo >= 0:
        return (0 if rhi is None else llo // rhi), (None if lhi is None else lhi // least)
    return (None if llo is None else llo // least), (None if lhi is None else max(lhi // least, 0))
