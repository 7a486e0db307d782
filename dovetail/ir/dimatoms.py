"""What Dims are made of: atoms, their order and their text.

    Monomial = product of atoms, in their order
    Atom     = Symbol | FloorDiv | Mod | Min | Max | RuntimeIndex

Everything is hash-consed (`intern`), so equal things are the same object and `is` compares them. Factors and terms
stand in the order of what they are made of (`Atom.key`), so that the same Dim has one text whatever was made before it:
sizes first, then ranges by the number in their names, then what is computed from both.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.ir.literals import integer
from dovetail.ir.stores import InternTable

if TYPE_CHECKING:
    from dovetail.ir.dims import Dim

R = TypeVar("R")

table = InternTable()


def intern(key: Any, make: Callable[[], Any]) -> Any:
    """The object for `key`; made if there is none."""
    found = table.get(key)
    return table.add(key, make) if found is None else found


def cached(function: Callable[..., R]) -> Callable[..., R]:
    """A decorator: each result, as long as the table of Dims is not trimmed."""
    kept = cache(function)
    table.caches.append(kept.cache_clear)
    return kept


class Atom:
    """An indivisible factor. `key` orders atoms, and differs where they do; `dynamic`: has it a RuntimeIndex inside?

    `place`: where a kind that is no symbol stands among the others; symbols are before them all.
    """

    __slots__ = ("key", "dynamic")
    place: int

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
        super().__init__((self.place, key(left), key(right)), has_values(left) or has_values(right))
        self.left, self.right = left, right

    def __repr__(self) -> str:
        return self.form.format(_paren(self.left), _paren(self.right))


class FloorDiv(Binary):
    __slots__ = ()
    form, place = "({} // {})", 2


class Mod(Binary):
    __slots__ = ()
    form, place = "({} % {})", 3


class Min(Binary):
    __slots__ = ()
    form, place = "min({}, {})", 4


class Max(Binary):
    __slots__ = ()
    form, place = "max({}, {})", 5


class RuntimeIndex(Atom):
    """An index read from memory at run time; `lo <= value < extent` is checked elsewhere."""

    __slots__ = ("expr", "extent")
    place = 6

    def __init__(self, expr: Any, extent: Dim | None) -> None:
        size = (0, -1) if extent is None else key(extent)
        super().__init__((self.place, expr.digest, size), dynamic=True)
        self.expr, self.extent = expr, extent

    def __repr__(self) -> str:
        return f"value({self.expr})"


Monomial = tuple[Atom, ...]


# ---------------------------------------------------------------- order

key_of = operator.attrgetter("key")


def order(term: tuple[Monomial, int]) -> tuple[bool, list]:
    """What orders the terms of a sum."""
    return not term[0], list(map(key_of, term[0]))  # the constant term comes last


@cache
def _name_key(name: str) -> tuple:
    """Numbers in names count as numbers, and before letters: `i2` comes before `j10`, that before `i11`."""
    numbers = tuple(map(int, re.findall(r"\d+", name)))
    return numbers, name


def key(dim: Dim) -> tuple:
    """What orders Dims, in all processes alike: numbers, then polynomials by their terms."""
    return (0, dim) if isinstance(dim, int) else (1, tuple((tuple(map(key_of, m)), c) for m, c in dim.terms))


# ---------------------------------------------------------------- text


def term_text(factors: list[str], coefficient: int) -> str:
    """`coefficient*factor*factor...`, as programs write it."""
    if not factors:
        return integer(coefficient)
    product = "*".join(factors)
    return product if coefficient == 1 else f"{integer(coefficient)}*{product}"


def _paren(dim: Dim) -> str:
    if isinstance(dim, int):
        return integer(dim) if dim >= 0 else f"({integer(dim)})"
    return str(dim) if sole_atom(dim) is not None else f"({dim})"


# ---------------------------------------------------------------- what is inside


def sole_atom(dim: Dim) -> Atom | None:
    """The atom that the Dim is; None where it is anything else."""
    return None if isinstance(dim, int) else dim.sole


def symbols_of(atom: Atom) -> frozenset[Symbol]:
    """Every symbol anywhere inside the atom."""
    if isinstance(atom, Symbol):
        return frozenset((atom,))
    if isinstance(atom, Binary):
        return symbols(atom.left) | symbols(atom.right)
    return atom.expr.symbols  # type: ignore[attr-defined]


def has_values(dim: Dim) -> bool:
    """Does an index that is only known at run time occur in `dim`?"""
    return not isinstance(dim, int) and dim.dynamic


def symbols(dim: Dim) -> frozenset[Symbol]:
    """Every symbol anywhere inside the Dim."""
    return frozenset() if isinstance(dim, int) else dim.symbols
