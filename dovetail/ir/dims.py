"""Symbolic integers: sizes, strides and indices.

    Dim  = int | Poly                       a Poly is never constant; constants are plain ints
    Poly = sum of coefficient * product of atoms (`ir/dimatoms.py`)

Everything is hash-consed, so equal expressions are the same object and `is` compares them. A `Symbol` knows its
lower bound and, when it is a loop range, its exclusive upper bound (itself a Dim); simplification uses nothing else.
Operators simplify by what is proved, and proofs use the operators. The constant term comes last.
`str()` of a Dim is a Python expression over the symbols' names, and `ir/dimforms.py` reads it back.

A `RuntimeIndex` atom is an index that is only known when the program runs (the row of an embedding); it wraps an
integer expression of the loop IR, whose `substitute` it calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from math import gcd
from typing import Any, Union

from dovetail.ir.dimatoms import (
    Atom,
    Binary,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    RuntimeIndex,
    Symbol,
    cached,
    intern,
    key_of,
    order,
    sole_atom,
    symbols_of,
    term_text,
)
from dovetail.ir.dimatoms import has_values as has_values  # asked of Dims by all parts
from dovetail.ir.dimatoms import key as key
from dovetail.ir.dimatoms import symbols as symbols
from dovetail.ir.dimbounds import bounds

Dim = Union[int, "Poly"]


# ---------------------------------------------------------------- construction


def symbol(name: str, lo: int = 0, extent: Dim | None = None, hint: int | None = None) -> Poly:
    """The symbol `name` as a Dim. Two calls with equal arguments give the same object."""
    return of_atom(intern((Symbol, name, lo, extent, hint), lambda: Symbol(name, lo, extent, hint)))


def of_atom(atom: Atom) -> Poly:
    """The Dim that is the atom alone."""
    return _monomial_dim((atom,))  # type: ignore[return-value]


def value(expr: Any, extent: Dim | None = None) -> Dim:
    """An index computed at run time by `expr`, known to lie in `[0, extent)`.

    An expression that is itself an index (it has a `dim`) is no run-time value.
    """
    dim = getattr(expr, "dim", None)
    if dim is not None:
        return dim
    return of_atom(intern((RuntimeIndex, expr, extent), lambda: RuntimeIndex(expr, extent)))


def as_symbol(dim: Dim) -> Symbol:
    """The Symbol that a Dim made by `symbol()` consists of."""
    sole = dim.sole  # type: ignore[union-attr]
    assert type(sole) is Symbol
    return sole


def _binary(kind: type[Binary], left: Dim, right: Dim) -> Poly:
    return of_atom(intern((kind, left, right), lambda: kind(left, right)))


def _terms(dim: Dim) -> Iterable[tuple[Monomial, int]]:
    if isinstance(dim, Poly):
        return dim.terms
    return (((), dim),) if dim else ()


def _from_terms(terms: dict[Monomial, int]) -> Dim:
    _recombine(terms)
    _recombine_extremes(terms)
    kept = sorted(((m, c) for m, c in terms.items() if c), key=order)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    ordered = tuple(kept)
    return intern(ordered, lambda: Poly(ordered))


def _recombine(terms: dict[Monomial, int]) -> None:
    """c*(x // c) + x % c  ->  x, with any common factor."""
    for monomial in [m for m in terms if any(isinstance(a, Mod) for a in m)]:
        coefficient = terms.get(monomial, 0)
        if not coefficient:
            continue
        rest, remainder = _split_mod(monomial)
        quotient = floordiv(remainder.left, remainder.right)
        whole = _product(_product(quotient, remainder.right), _monomial_dim(rest))
        items = dict(_terms(whole))
        if items and all(terms.get(m, 0) == c * coefficient for m, c in items.items()):
            del terms[monomial]
            for m in items:
                del terms[m]
            for m, c in _terms(_product(remainder.left, _monomial_dim(rest))):
                terms[m] = terms.get(m, 0) + c * coefficient


def _recombine_extremes(terms: dict[Monomial, int]) -> None:
    """a - min(a, b)  ->  max(a - b, 0), and a - max(a, b)  ->  -max(b - a, 0), with any common factor."""
    for monomial in [m for m in terms if len(m) == 1 and isinstance(m[0], (Min, Max))]:
        (atom,) = monomial
        factor = -terms.get(monomial, 0)
        for side, other in ((atom.left, atom.right), (atom.right, atom.left)):  # type: ignore[attr-defined]
            items = dict(_terms(side))
            if factor and items and all(terms.get(m, 0) == c * factor for m, c in items.items()):
                least = isinstance(atom, Min)
                for m in (monomial, *items):
                    del terms[m]
                rest = maximum(side - other, 0) if least else maximum(other - side, 0)
                for m, c in _terms(rest):
                    terms[m] = terms.get(m, 0) + (c if least else -c) * factor
                break


def _split_mod(monomial: Monomial) -> tuple[Monomial, Mod]:
    at = next(k for k, a in enumerate(monomial) if isinstance(a, Mod))
    remainder = monomial[at]
    assert isinstance(remainder, Mod)
    return monomial[:at] + monomial[at + 1 :], remainder


def _monomial_dim(monomial: Monomial) -> Dim:
    terms = ((monomial, 1),)
    return intern(terms, lambda: Poly(terms)) if monomial else 1


@cached
def _sum(a: Dim, b: Dim) -> Dim:
    terms = dict(_terms(a))
    for m, c in _terms(b):
        terms[m] = terms.get(m, 0) + c
    return _from_terms(terms)


@cached
def _product(a: Dim, b: Dim) -> Dim:
    terms: dict[Monomial, int] = {}
    for m1, c1 in _terms(a):
        for m2, c2 in _terms(b):
            m = tuple(sorted(m1 + m2, key=key_of)) if m1 and m2 else m1 or m2
            terms[m] = terms.get(m, 0) + c1 * c2
    return _from_terms(terms)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all Dims; 1 of none."""
    return reduce(operator.mul, dims, 1)


def _divide_terms(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """(q, r) with a == q*b + r, taking into q every term of `a` that `b` divides exactly.

    A term whose coefficient is larger than b is split: 7*i // 3 gives q = 2*i, r = i.
    """
    if isinstance(b, Poly) and len(b.terms) != 1:
        times = dict(_terms(a)).get(b.terms[0][0], 0) // b.terms[0][1]
        return (times, 0) if a - b * times == 0 else (0, a)
    ((mb, cb),) = _terms(b)
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in _terms(a):
        left = _remove(m, mb)
        q = c // cb if left is not None else 0
        if left is not None and q:
            quotient[left] = quotient.get(left, 0) + q
        if c - q * cb:
            rest[m] = c - q * cb
    return _from_terms(quotient), _from_terms(rest)


def _remove(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


@cached
def floordiv(a: Dim, b: Dim) -> Dim:
    """Floor division; b > 0 is the caller's promise."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    quotient, rest = _divide_terms(a, b)
    if rest == 0 or known_nonnegative(rest) and known_less(rest, b):
        return quotient
    if isinstance(rest, Poly) and isinstance(b, int):
        inner = sole_atom(rest)
        if isinstance(inner, FloorDiv) and isinstance(inner.right, int):
            return quotient + floordiv(inner.left, inner.right * b)
        factor = _common_factor(rest, b)
        if factor > 1:
            return quotient + floordiv(_scale_down(rest, factor), b // factor)
    return quotient + _binary(FloorDiv, rest, b)


@cached
def mod(a: Dim, b: Dim) -> Dim:
    """Python's modulo; b > 0 is the caller's promise."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1:
        return 0
    _, rest = _divide_terms(a, b)
    if rest == 0 or known_nonnegative(rest) and known_less(rest, b):
        return rest
    if isinstance(rest, Poly) and isinstance(b, int):
        inner = sole_atom(rest)
        if isinstance(inner, Mod) and isinstance(inner.right, int) and inner.right % b == 0:
            return mod(inner.left, b)
        factor = _common_factor(rest, b)
        if factor > 1:
            return mod(_scale_down(rest, factor), b // factor) * factor
    return _binary(Mod, rest, b)

def _common_factor(dim: Poly, b: int) -> int:
    """gcd of b and every coefficient: (6*i + 2) // 4 is (3*i + 1) // 2."""
    return gcd(b, *(c for _, c in dim.terms))


def _scale_down(dim: Poly, factor: int) -> Dim:
    return _from_terms({m: c // factor for m, c in dim.terms})


@cached
def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two Dims: a `Min` atom unless bounds say which one it is."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    difference = b - a
    return a if known_nonnegative(difference) else b if known_nonnegative(-difference) else _binary(Min, a, b)


@cached
def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two Dims: a `Max` atom unless bounds say which one it is."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    difference = b - a
    return b if known_nonnegative(difference) else a if known_nonnegative(-difference) else _binary(Max, a, b)


class Poly:
    """A non-constant polynomial; build it with operators, never directly."""

    __slots__ = ("terms", "dynamic", "sole", "_hash", "_symbols")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self.dynamic = any(a.dynamic for m, _ in terms for a in m)
        (monomial, coefficient), *more = terms
        self.sole = monomial[0] if not more and coefficient == 1 and len(monomial) == 1 else None
        self._hash = hash(terms)
        self._symbols: frozenset[Symbol] | None = None

    def __hash__(self) -> int:
        return self._hash

    __add__ = __radd__ = _sum
    __mul__ = __rmul__ = _product
    __floordiv__ = floordiv
    __mod__ = mod

    def __neg__(self) -> Dim:
        return _product(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return _sum(self, _product(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _sum(other, -self)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __repr__(self) -> str:
        return " + ".join(term_text(list(map(repr, m)), c) for m, c in self.terms).replace("+ -", "- ")

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol anywhere inside, atoms' operands and `RuntimeIndex` expressions included."""
        if self._symbols is None:
            self._symbols = frozenset().union(*(symbols_of(a) for m, _ in self.terms for a in m))
        return self._symbols


# ---------------------------------------------------------------- what is known


@cached
def known_nonnegative(dim: Dim) -> bool:
    """True only when dim >= 0 for every value its symbols can take."""
    return _proved(dim, 2)


def known_less(a: Dim, b: Dim) -> bool:
    """Is `a < b` for all values of the symbols? False also where nobody knows."""
    return known_nonnegative(b - a - 1)


def _proved(dim: Dim, depth: int) -> bool:
    """`depth`: how many atoms may be replaced on the way."""
    lo = bounds(dim)[0]
    if lo is not None:
        if lo >= 0:
            return True
        if isinstance(dim, int):
            return False
    assert isinstance(dim, Poly)
    low = _replace_bounded(dim)
    if low is not dim and known_nonnegative(low) or _nonnegative_from_lows(low):
        return True
    return depth > 0 and any(all(_proved(d, depth - 1) for d in case) for case in _cases(dim))


def _cases(dim: Poly) -> Iterator[tuple[Dim, ...]]:
    """Groups of Dims: where all of one group are nonnegative, so is `dim` (or a positive multiple of it).

    min(a, b) is a or b, and at most both; a // b lies between (a - b + 1) / b and a / b, and n >= a // b where
    b*n + b - 1 >= a, n <= a // b where b*n <= a.
    """
    for atom in dict.fromkeys(a for m, _ in dim.terms for a in m if isinstance(a, (FloorDiv, Min, Max))):
        if any(m.count(atom) > 1 for m, _ in dim.terms):
            continue
        step = _from_terms({_remove(m, (atom,)): c for m, c in dim.terms if atom in m})  # type: ignore[misc]
        rest = _from_terms({m: c for m, c in dim.terms if atom not in m})
        up, down = known_nonnegative(step), known_nonnegative(step * -1)
        if isinstance(atom, FloorDiv):
            if (up or down) and known_less(0, atom.right):
                spare = 0 if step == 1 else atom.right - 1 if step == -1 else -step * (atom.right - 1) if up else 0
                yield (rest * atom.right + step * atom.left + spare,)
            continue
        left, right = rest + step * atom.left, rest + step * atom.right
        if (up or down) and isinstance(atom, Min) == down:
            yield (left,)
            yield (right,)
        else:
            yield left, right


def _replace_bounded(dim: Poly) -> Dim:
    """A lower bound of `dim` in which one bounded atom is replaced by the end that minimises it.

    dim = c*atom + rest is at least c*end + rest wherever c keeps its sign, whatever else c and rest mention.
    """
    for atom in dict.fromkeys(a for m, _ in dim.terms for a in m):
        ends = _ends(atom)
        if ends is None:
            continue
        step = _from_terms({_remove(m, (atom,)): c for m, c in dim.terms if atom in m})  # type: ignore[misc]
        end = ends[0] if known_nonnegative(step) else ends[1] if known_nonnegative(step * -1) else None
        if end is not None:
            return _from_terms({m: c for m, c in dim.terms if atom not in m}) + step * end
    return dim


def _ends(atom: Atom) -> tuple[Dim, Dim] | None:
    """Inclusive bounds that may be symbolic; None where one is missing."""
    if isinstance(atom, Mod):
        return 0, atom.right - 1
    if isinstance(atom, (Symbol, RuntimeIndex)) and atom.extent is not None:
        return (atom.lo if isinstance(atom, Symbol) else 0), atom.extent - 1
    return None


def _nonnegative_from_lows(dim: Dim) -> bool:
    """Write every size as lo + s', s' >= 0: nonnegative coefficients then suffice."""
    if isinstance(dim, int):
        return dim >= 0
    atoms = {a for m, _ in dim.terms for a in m}
    sizes = [a for a in atoms if isinstance(a, Symbol) and a.extent is None]
    if len(sizes) != len(atoms):
        return False
    shifted = substitute(dim, {a: symbol("'" + a.name) + a.lo for a in sizes})
    return all(c >= 0 for _, c in _terms(shifted))


# ---------------------------------------------------------------- use


def substitute(dim: Dim, mapping: Mapping[Symbol, Dim], of_value: Callable[[Any], Any] | None = None) -> Dim:
    """Simultaneous replacement of symbols; simplifies as it rebuilds.

    `of_value` rewrites the expression inside each RuntimeIndex; by default its own `substitute`.
    """
    if isinstance(dim, int) or (of_value is None and not (dim.symbols & mapping.keys())):
        return dim
    sole = dim.sole
    if type(sole) is Symbol:
        return mapping.get(sole, dim)
    if sole is not None:
        return _substitute_atom(sole, mapping, of_value)
    result: Dim = 0
    for monomial, coefficient in dim.terms:
        factor: Dim = coefficient
        for atom in monomial:
            factor = factor * _substitute_atom(atom, mapping, of_value)
        result = result + factor
    return result


def _substitute_atom(atom: Atom, mapping: Mapping[Symbol, Dim], of_value: Any) -> Dim:
    if isinstance(atom, Symbol):
        return mapping.get(atom, of_atom(atom))
    if isinstance(atom, RuntimeIndex):
        extent = None if atom.extent is None else substitute(atom.extent, mapping)
        expr = atom.expr.substitute(mapping) if of_value is None else of_value(atom.expr)
        return value(expr, extent)
    assert isinstance(atom, Binary)
    left = substitute(atom.left, mapping, of_value)
    return _BUILD[type(atom)](left, substitute(atom.right, mapping, of_value))


_BUILD: dict[type, Callable[[Dim, Dim], Dim]] = {FloorDiv: floordiv, Mod: mod, Min: minimum, Max: maximum}


@cached
def coefficient(dim: Dim, of: Symbol) -> Dim | None:
    """c such that dim == c*of + (something without `of`); None when dim is not affine in `of`."""
    result: Dim = 0
    for monomial, c in _terms(dim):
        count = monomial.count(of)
        others = tuple(a for a in monomial if a is not of)
        if count > 1 or any(of in symbols_of(a) for a in others):
            return None
        if count:
            result = result + _from_terms({others: c})
    return result


def divides(dim: Dim) -> bool:
    """May there be a division by 0 in it?"""
    atoms = [a for m, _ in _terms(dim) for a in m if isinstance(a, Binary)]
    if any(isinstance(a, (FloorDiv, Mod)) and not known_less(0, a.right) for a in atoms):
        return True
    return any(divides(a.left) or divides(a.right) for a in atoms)
