"""Symbolic integers: sizes, strides and indices.

    Dim  = int | Poly                       a Poly is never constant; constants are plain ints
    Poly = sum of coefficient * product of atoms
    Atom = Symbol | FloorDiv | Mod | Min | Max | RuntimeIndex

Everything is hash-consed, so equal expressions are the same object and `is` compares them. A `Symbol` knows its
lower bound and, when it is a loop range, its exclusive upper bound (itself a Dim); simplification uses nothing else.
`str()` of a Dim is a Python expression over the symbols' names, and `ir/dimforms.py` reads it back.

Factors and terms stand in the order of what they are made of (`Atom.key`), so that the same Dim has one text whatever
was made before it: sizes first, then ranges by the number in their names, then what is computed from both.

A `RuntimeIndex` atom is an index that is only known when the program runs (the row of an embedding); it wraps an
integer expression of the loop IR, whose `substitute` it calls.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from math import gcd
from typing import Any, Union

from dovetail.ir.literals import integer
from dovetail.ir.stores import InternTable

Dim = Union[int, "Poly"]
Bound = int | None  # None: unbounded on that side

table = InternTable()


def _intern(key: Any, make: Callable[[], Any]) -> Any:
    found = table.get(key)
    return table.add(key, make) if found is None else found


class Atom:
    """An indivisible factor. `key` orders atoms, and differs where they do; `dynamic`: has it a RuntimeIndex inside?"""

    __slots__ = ("key", "dynamic")

    def __init__(self, key: tuple, dynamic: bool = False) -> None:
        self.key, self.dynamic = key, dynamic

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


class Symbol(Atom):
    """A size (`extent is None`) or a loop range (`lo <= symbol < extent`). `hint`: a typical value, for costs."""

    __slots__ = ("name", "lo", "extent", "hint")

    def __init__(self, name: str, lo: int, extent: Dim | None, hint: int | None) -> None:
        size = (0, -1) if extent is None else key(extent)
        super().__init__((extent is not None, _name_key(name), lo, size, -1 if hint is None else hint))
        self.name, self.lo, self.extent, self.hint = name, lo, extent, hint

    def __repr__(self) -> str:
        return self.name


class Binary(Atom):
    """`FloorDiv`, `Mod`, `Min` or `Max` of two Dims that did not simplify; `form` is its text."""

    __slots__ = ("left", "right")
    form = ""

    def __init__(self, left: Dim, right: Dim) -> None:
        super().__init__((_PLACES[type(self).__name__], key(left), key(right)), has_values(left) or has_values(right))
        self.left, self.right = left, right

    def __repr__(self) -> str:
        return self.form.format(_paren(self.left), _paren(self.right))


class FloorDiv(Binary):
    __slots__ = ()
    form = "({} // {})"


class Mod(Binary):
    __slots__ = ()
    form = "({} % {})"


class Min(Binary):
    __slots__ = ()
    form = "min({}, {})"


class Max(Binary):
    __slots__ = ()
    form = "max({}, {})"


class RuntimeIndex(Atom):
    """An index read from memory at run time; `lo <= value < extent` is checked elsewhere."""

    __slots__ = ("expr", "extent")

    def __init__(self, expr: Any, extent: Dim | None) -> None:
        size = (0, -1) if extent is None else key(extent)
        super().__init__((_PLACES["RuntimeIndex"], expr.digest, size), dynamic=True)
        self.expr, self.extent = expr, extent

    def __repr__(self) -> str:
        return f"value({self.expr})"


Monomial = tuple[Atom, ...]


class Poly:
    """A non-constant polynomial; build it with operators, never directly."""

    __slots__ = ("terms", "dynamic", "_hash", "_symbols")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self.dynamic = any(a.dynamic for m, _ in terms for a in m)
        self._hash = hash(terms)
        self._symbols: frozenset[Symbol] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, other)

    __radd__ = __add__

    def __mul__(self, other: Dim) -> Dim:
        return _product(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _product(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return _sum(self, _product(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _sum(other, -self)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __repr__(self) -> str:
        return " + ".join(term_text(list(map(repr, m)), c) for m, c in self.terms).replace("+ -", "- ")

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Every symbol anywhere inside, atoms' operands and `RuntimeIndex` expressions included."""
        if self._symbols is None:
            self._symbols = frozenset().union(*(_atom_symbols(a) for m, _ in self.terms for a in m))
        return self._symbols


def term_text(factors: list[str], coefficient: int) -> str:
    """`coefficient*factor*factor...`, as programs write it."""
    if not factors:
        return integer(coefficient)
    product = "*".join(factors)
    return product if coefficient == 1 else f"{integer(coefficient)}*{product}"


def _paren(dim: Dim) -> str:
    if isinstance(dim, int):
        return integer(dim) if dim >= 0 else f"({integer(dim)})"
    return str(dim) if _sole_atom(dim) is not None else f"({dim})"


def _atom_symbols(atom: Atom) -> frozenset[Symbol]:
    if isinstance(atom, Symbol):
        return frozenset((atom,))
    if isinstance(atom, Binary):
        return symbols(atom.left) | symbols(atom.right)
    return atom.expr.symbols  # type: ignore[attr-defined]


def has_values(dim: Dim) -> bool:
    """Does an index that is only known at run time occur in `dim`?"""
    return isinstance(dim, Poly) and dim.dynamic


def symbols(dim: Dim) -> frozenset[Symbol]:
    """Every symbol anywhere inside the Dim."""
    return dim.symbols if isinstance(dim, Poly) else frozenset()


# ---------------------------------------------------------------- construction


def symbol(name: str, lo: int = 0, extent: Dim | None = None, hint: int | None = None) -> Poly:
    """The symbol `name` as a Dim. Two calls with equal arguments give the same object."""
    return of_symbol(_intern((Symbol, name, lo, extent, hint), lambda: Symbol(name, lo, extent, hint)))


def of_symbol(symbol: Symbol) -> Poly:
    """The Dim that is the symbol alone."""
    return _atom_dim(symbol)


def value(expr: Any, extent: Dim | None = None) -> Dim:
    """An index computed at run time by `expr`, known to lie in `[0, extent)`.

    An expression that is itself an index (it has a `dim`) is no run-time value.
    """
    dim = getattr(expr, "dim", None)
    if dim is not None:
        return dim
    return _atom_dim(_intern((RuntimeIndex, expr, extent), lambda: RuntimeIndex(expr, extent)))


def as_symbol(dim: Dim) -> Symbol:
    """The Symbol that a Dim made by `symbol()` consists of."""
    assert isinstance(dim, Poly) and len(dim.terms) == 1
    (monomial, coefficient), = dim.terms
    assert coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol)
    return monomial[0]


def _atom_dim(atom: Atom) -> Poly:
    return _monomial_dim((atom,))  # type: ignore[return-value]


def _binary(kind: type[Binary], left: Dim, right: Dim) -> Poly:
    return _atom_dim(_intern((kind, left, right), lambda: kind(left, right)))


def _terms(dim: Dim) -> Iterable[tuple[Monomial, int]]:
    if isinstance(dim, Poly):
        return dim.terms
    return (((), dim),) if dim else ()


_key_of = operator.attrgetter("key")


def _order(item: tuple[Monomial, int]) -> tuple[bool, list]:
    monomial = item[0]
    return not monomial, [a.key for a in monomial]  # the constant term comes last


#: Atoms that are no symbols come after them, in this order.
_PLACES = {name: 2 + k for k, name in enumerate(("FloorDiv", "Mod", "Min", "Max", "RuntimeIndex"))}


@cache
def _name_key(name: str) -> tuple:
    """Numbers in names count as numbers, and before letters: `i2` comes before `j10`, that before `i11`."""
    numbers = tuple(map(int, re.findall(r"\d+", name)))
    return numbers, name


def key(dim: Dim) -> tuple:
    """What orders Dims, in all processes alike: numbers, then polynomials by their terms."""
    return (0, dim) if isinstance(dim, int) else (1, tuple((tuple(map(_key_of, m)), c) for m, c in dim.terms))


def _from_terms(terms: dict[Monomial, int]) -> Dim:
    _recombine(terms)
    _recombine_extremes(terms)
    kept = sorted(((m, c) for m, c in terms.items() if c), key=_order)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    key = tuple(kept)
    return _intern(key, lambda: Poly(key))


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
    return _intern(terms, lambda: Poly(terms)) if monomial else 1


@cache
def _sum(a: Dim, b: Dim) -> Dim:
    terms = dict(_terms(a))
    for m, c in _terms(b):
        terms[m] = terms.get(m, 0) + c
    return _from_terms(terms)


@cache
def _product(a: Dim, b: Dim) -> Dim:
    terms: dict[Monomial, int] = {}
    for m1, c1 in _terms(a):
        for m2, c2 in _terms(b):
            m = tuple(sorted(m1 + m2, key=_key_of)) if m1 and m2 else m1 or m2
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


@cache
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
        inner = _sole_atom(rest)
        if isinstance(inner, FloorDiv) and isinstance(inner.right, int):
            return quotient + floordiv(inner.left, inner.right * b)
        factor = _common_factor(rest, b)
        if factor > 1:
            return quotient + floordiv(_scale_down(rest, factor), b // factor)
    return quotient + _binary(FloorDiv, rest, b)


@cache
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
        inner = _sole_atom(rest)
        if isinstance(inner, Mod) and isinstance(inner.right, int) and inner.right % b == 0:
            return mod(inner.left, b)
        factor = _common_factor(rest, b)
        if factor > 1:
            return mod(_scale_down(rest, factor), b // factor) * factor
    return _binary(Mod, rest, b)


def _sole_atom(dim: Dim) -> Atom | None:
    if isinstance(dim, int):
        return None
    (monomial, coefficient), *more = dim.terms
    return monomial[0] if not more and coefficient == 1 and len(monomial) == 1 else None


def _common_factor(dim: Poly, b: int) -> int:
    """gcd of b and every coefficient: (6*i + 2) // 4 is (3*i + 1) // 2."""
    return gcd(b, *(c for _, c in dim.terms))


def _scale_down(dim: Poly, factor: int) -> Dim:
    return _from_terms({m: c // factor for m, c in dim.terms})


@cache
def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two Dims: a `Min` atom unless bounds say which one it is."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    difference = b - a
    return a if known_nonnegative(difference) else b if known_nonnegative(-difference) else _binary(Min, a, b)


@cache
def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two Dims: a `Max` atom unless bounds say which one it is."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    difference = b - a
    return b if known_nonnegative(difference) else a if known_nonnegative(-difference) else _binary(Max, a, b)


# ---------------------------------------------------------------- what is known


def bounds(dim: Dim) -> tuple[Bound, Bound]:
    """Inclusive interval; None means unbounded."""
    if isinstance(dim, int):
        return dim, dim
    return _poly_bounds(dim)


@cache
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


@cache
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
    sole = _sole_atom(dim)
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
        return mapping.get(atom, _atom_dim(atom))
    if isinstance(atom, RuntimeIndex):
        extent = None if atom.extent is None else substitute(atom.extent, mapping)
        expr = atom.expr.substitute(mapping) if of_value is None else of_value(atom.expr)
        return value(expr, extent)
    assert isinstance(atom, Binary)
    left = substitute(atom.left, mapping, of_value)
    return _BUILD[type(atom)](left, substitute(atom.right, mapping, of_value))


_BUILD: dict[type, Callable[[Dim, Dim], Dim]] = {FloorDiv: floordiv, Mod: mod, Min: minimum, Max: maximum}


@cache
def coefficient(dim: Dim, of: Symbol) -> Dim | None:
    """c such that dim == c*of + (something without `of`); None when dim is not affine in `of`."""
    result: Dim = 0
    for monomial, c in _terms(dim):
        count = monomial.count(of)
        others = tuple(a for a in monomial if a is not of)
        if count > 1 or any(of in _atom_symbols(a) for a in others):
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


_CACHED = (_sum, _product, floordiv, mod, minimum, maximum, _poly_bounds, known_nonnegative, coefficient)
table.caches += [f.cache_clear for f in _CACHED]
