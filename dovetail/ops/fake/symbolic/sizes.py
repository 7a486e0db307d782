"""Sizes that differ from call to call, and what a compilation relied on about them.

A `Sizes` belongs to one compilation. It makes symbols (`ir/dims.py`), knows the value that each has in the call that is
captured, and answers questions about expressions: from their ranges and from what was relied on before where that
settles it; otherwise the answer of this call becomes a `Fact` that the entry guards.

An equality that can be solved for a symbol replaces it from then on, so s1 == s0 leaves one symbol in all later
expressions.

An `unbacked` symbol is a size that an operator finds out when the program runs. What is asked about it is answered by
what sizes are like in general, and the answer is a fact as well, which the program checks as soon as it knows the size.
Its value can be asked for by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from dovetail.errors import Unsupported
from dovetail.ir import dimforms, dims, dimvalues
from dovetail.ir.dims import Dim, Poly, Symbol
from dovetail.ir.records import dataclass
from dovetail.ops.fake.symbolic.equal_masks import Masks

EQUAL, UNEQUAL, AT_LEAST = "==", "!=", ">="
DECLARED, MARKED = "dynamic_shapes", "mark_dynamic"  # where facts come from that the user states
_MIRRORED = {EQUAL: EQUAL, UNEQUAL: UNEQUAL, AT_LEAST: "<="}


UNBACKED = 2  # what an unbacked size counts as where something is decided: neither empty nor a single one
LEAST = -(1 << 63)  # of what a tensor of integers may hold


class Undecided(Unsupported):
    """Something depends on a size that is only known when the program runs."""


@dataclass(frozen=True)
class Fact:
    """`dim sign 0` holds; `where` is the user's `file:line` that made the compilation rely on it."""

    sign: str
    dim: Dim
    where: str = ""

    def __str__(self) -> str:
        left, right = _halves(self.dim)
        if isinstance(left, int) and not isinstance(right, int):
            return f"{right} {_MIRRORED[self.sign]} {left}"
        return f"{left} {self.sign} {right}"


class Sizes:
    """The symbols of one compilation. `where` says which user line is being traced."""

    def __init__(self, where: Callable[[], str] = str) -> None:
        self.where = where
        self.hints: dict[Symbol, int] = {}
        self.facts: list[Fact] = []
        self.solved: dict[Symbol, Dim] = {}  # in terms of symbols that are not solved
        self.lows: dict[Symbol, Dim] = {}  # a symbol with a lower bound that was learned, for proofs only
        self._resolved: dict[Dim, Dim] = {}  # answers given since the last fact
        self._raised: dict[Dim, Dim] = {}
        self._known: dict[tuple[str, Dim], bool | None] = {}
        self._bounds: list[tuple[Poly, Set[Symbol]]] | None = None  # what is at least 0; its unbacked symbols
        self._in_parts: list[Dim] = []  # what is at least 0, as several facts say
        self._whole: Set[Dim] | None = None  # the same in terms of symbols that are not solved
        self.constants: dict[Dim, int] = {}  # expressions that no symbol can be solved from, but that have one value
        self.unbacked: dict[Symbol, str] = {}  # with the operators that they come from
        self.places: dict[Symbol, str] = {}  # the user's lines that those are at
        self.named: dict[str, tuple[Dim, int]] = {}  # by the user: the first size, and how many times it
        self.unnamed = False  # is a text with what a symbol is called in it a mistake?
        self.counts: dict[Any, tuple[Any, int, Dim]] = {}  # of tensors, with their versions: what was found out of them
        self.masks = Masks()

    def symbol(self, name: str, hint: int, lo: int = 0) -> Dim:
        """A new symbol of at least `lo`, whose value in this call is `hint`."""
        made = dims.symbol(name, lo, hint=hint)
        self.hints[dims.as_symbol(made)] = hint
        return made

    def unbacked_symbol(self, operator: str, lo: int = 0) -> Dim:
        """A new symbol for what `operator` finds out when the program runs."""
        made = dims.symbol(f"u{len(self.unbacked)}", lo)
        symbol = dims.as_symbol(made)
        self.hints[symbol], self.unbacked[symbol], self.places[symbol] = UNBACKED, operator, self.where()
        return made

    def declare(self, dim: Dim, name: str, scale: int, offset: int) -> None:
        """Rely on `dim` being `scale` times what the user calls `name`, plus `offset`."""
        before, self.where = self.where, lambda: DECLARED
        first, times = self.named.setdefault(name, (dim - offset, scale))
        if first is not dim - offset:
            self.holds(EQUAL, (dim - offset) * times - first * scale)
        elif scale > 1:
            self.holds(EQUAL, dims.mod(first, scale))
        self.where = before

    def bound(self, dim: Dim, low: int | None, high: int | None) -> None:
        """Rely on the bounds that the user has declared."""
        before, self.where = self.where, lambda: DECLARED
        for limit in (dim - low if low is not None else 0, high - dim if high is not None else 0):
            self.holds(AT_LEAST, limit)
        self.where = before

    # ------------------------------------------------------------ questions

    def is_unbacked(self, dim: Dim) -> bool:
        """Is the value only known when the program runs?"""
        return bool(self.unbacked_in(dim))

    def unbacked_in(self, dim: Dim) -> Set[Symbol]:
        """The symbols in it that are unbacked."""
        return self.unbacked.keys() & dims.symbols(dim) if self.unbacked else frozenset()

    def resolve(self, dim: Dim) -> Dim:
        """The same value in terms of the fewest symbols."""
        if isinstance(dim, int) or not (self.facts or self.constants):
            return dim
        found = self._resolved.get(dim)
        if found is None:
            found = dims.substitute(dim, self.solved) if self.solved else dim
            found = self._resolved[dim] = self.constants.get(found, found)
        return found

    def raised(self, dim: Dim) -> Dim:
        """The same over symbols that know the least value which was learned."""
        found = self._raised.get(dim)
        if found is None:
            found = self._raised[dim] = dims.substitute(dim, self.lows)
        return found

    def hint(self, dim: Dim) -> int:
        """The value in the call that is captured."""
        return dimvalues.evaluate(dim, self.hints)

    def likely(self, sign: str, dim: Dim, alike: bool | None = None) -> bool:
        """Is `dim sign 0` true in this call? Unbacked sizes are not 0 or 1, and equal to what they are compared with.

        `alike`: is `dim` the difference of what are equal then? None: judge by what it looks like.
        """
        value = self.hint(dim)
        if sign == AT_LEAST:
            return value >= 0
        alike = not _is_small(dim) if alike is None and self.is_unbacked(dim) else alike
        equal = bool(alike) and self._may_be_zero(dim) if self.is_unbacked(dim) else value == 0
        return equal == (sign == EQUAL)

    def _may_be_zero(self, dim: Dim) -> bool:
        """Do the facts allow it, the other symbols being what they are in this call?"""
        given = {s: hint for s, hint in self.hints.items() if s not in self.unbacked}
        return self.known(EQUAL, dims.substitute(dim, given)) is not False

    def holds(self, sign: str, dim: Dim, alike: bool | None = None) -> bool:
        """Is `dim sign 0` true? Relies on the answer where nothing known settles it."""
        known = self.known(sign, dim)
        if known is not None:
            return known
        dim = self.resolve(dim)
        return self.expect(sign, dim, self.likely(sign, dim, alike))

    def expect(self, sign: str, dim: Dim, answer: bool) -> bool:
        """Rely on this answer to a question that nothing known settles."""
        if sign == AT_LEAST:
            self._rely(AT_LEAST, dim if answer else -dim - 1)
        else:
            self._rely(EQUAL if answer == (sign == EQUAL) else UNEQUAL, dim)
        return answer

    def known(self, sign: str, dim: Dim) -> bool | None:
        """The same where it is settled for every call that the facts allow; None where it is not."""
        dim = self.resolve(dim)
        if isinstance(dim, int):
            return dim >= 0 if sign == AT_LEAST else (dim == 0) == (sign == EQUAL)
        if (sign, dim) not in self._known:
            found = self._prove(sign, dim)
            if sign == EQUAL and found:
                self._equate(dim)  # lowering compares sizes as they are written
            self._known[sign, dim] = found
        return self._known[sign, dim]

    def _prove(self, sign: str, dim: Dim) -> bool | None:
        if sign == AT_LEAST:
            return True if self._nonnegative(dim) else False if self._nonnegative(-dim - 1) else self._told(dim)
        assert isinstance(dim, Poly)
        factor, constant = dimforms.content(dim)
        if constant % factor:  # 2*a == 1 has no solution
            return sign == UNEQUAL
        if self._nonnegative(dim - 1) or self._nonnegative(-dim - 1) or self._unequal(dim):
            return sign == UNEQUAL
        return sign == EQUAL if self._nonnegative(dim) and self._nonnegative(-dim) else None

    def _told(self, dim: Dim) -> bool | None:
        """Is `dim >= 0` what facts say together? They are plain: min(a, 1) >= b is a >= b and 1 >= b.

        Looked up: to take each question apart would double what it costs to compile many sizes.
        """
        if self._whole is None:
            pairs = [(each, self.resolve(each)) for each in self._in_parts]
            # What is checked with more sizes may be checked too late.
            self._whole = {whole for each, whole in pairs if self.unbacked_in(each) <= self.unbacked_in(whole)}
        return True if dim in self._whole else False if -dim - 1 in self._whole else None

    def value(self, dim: Dim) -> int:
        """The number, on which the entry relies from then on."""
        dim = self.resolve(dim)
        if self.is_unbacked(dim):
            raise undecided(self, dim)
        if not isinstance(dim, int):
            hint = self.hint(dim)
            if not any(dims.coefficient(dim, s) in (1, -1) for s in dim.symbols):
                for symbol in sorted(dim.symbols):  # a product that nothing can be solved from
                    self.value(dims.of_atom(symbol))
            if not isinstance(self.resolve(dim), int):
                self._rely(EQUAL, dim - hint)
            return hint
        return dim

    # ------------------------------------------------------------ what is relied on

    def _nonnegative(self, dim: Dim) -> bool:
        if dims.known_nonnegative(dim):
            return True
        if not self.facts or isinstance(dim, int):
            return False
        raised = self.raised(dim)
        if raised is not dim and dims.known_nonnegative(raised):
            return True
        if self._bounds is None:
            resolved = [(self.resolve(f.dim), self.unbacked_in(f.dim)) for f in self.facts if f.sign == AT_LEAST]
            self._bounds = [(r, unbacked) for d, unbacked in resolved if isinstance(r := self.raised(d), Poly)]
        mine, unbacked = dims.symbols(raised), self.unbacked_in(dim)
        for bound, needed in self._bounds:  # what is checked with more sizes may be checked too late
            if needed <= unbacked and mine & dims.symbols(bound) and isinstance(raised, Poly):
                for times in (1, *dimforms.multiples(raised, bound)):
                    if dims.known_nonnegative(raised - bound * times):
                        return True
        factors, rest = dimforms.common_factors(dim)
        return bool(factors) and all(map(self._nonnegative, (*factors, rest)))

    def _unequal(self, dim: Dim) -> bool:
        known = [self.resolve(f.dim) for f in self.facts if f.sign == UNEQUAL]
        return any(k is dim or k is -dim for k in known)

    def _rely(self, sign: str, dim: Dim) -> None:
        """Relies on what holds in this call, as one or several plain statements."""
        simpler = self._simpler(sign, dim)
        for each in simpler or ():
            if not isinstance(each[1], int) and self.known(*each) is None:
                self._rely(*each)
        if simpler is None:
            self._add(sign, dim)
            if sign == AT_LEAST and self._nonnegative(-dim):  # bounded from both sides
                self._add(EQUAL, dim if dim.terms[0][1] > 0 else -dim)  # type: ignore[union-attr]
        elif sign == EQUAL:
            self._equate(dim)
        elif sign == AT_LEAST:
            self._in_parts.append(dim)
            self._forget()

    def _add(self, sign: str, dim: Dim) -> None:
        self.facts.append(Fact(sign, dim, self.where()))
        if sign == AT_LEAST:
            self._raise_low(dim)
        self._forget()
        if sign == EQUAL:
            self._solve(dim)
            self._equate(dim)

    def equate(self, left: Dim, right: Dim) -> None:
        """They are equal, which was learned: what is compared with a constant is written as one from now on.

        The difference of two expressions may be written such that neither can be told from it.
        """
        left, right = self.resolve(left), self.resolve(right)
        if isinstance(left, int) != isinstance(right, int):
            number, dim = (left, right) if isinstance(left, int) else (right, left)
            assert isinstance(number, int)
            self.constants[dim] = number
            self._solve_constants()
            self._forget()

    def _equate(self, dim: Dim) -> None:
        """What varies in `dim`, which is 0, is a constant from now on."""
        constant = dict(dim.terms).get((), 0)  # type: ignore[union-attr]
        self.constants[dim - constant] = -constant
        self.constants[constant - dim] = constant
        self._solve_constants()
        self._forget()

    def _forget(self) -> None:
        self._resolved.clear()
        self._raised.clear()
        self._known.clear()
        self._bounds = self._whole = None

    def _simpler(self, sign: str, dim: Dim) -> list[tuple[str, Dim]] | None:
        """The same said by simpler statements together; None where there are none."""
        assert not isinstance(dim, int)
        factor, constant = dimforms.content(dim)
        if factor > 1 and (sign == AT_LEAST or constant % factor == 0):
            return [(sign, dims.floordiv(dim - constant, factor) + constant // factor)]
        shared, rest = dimforms.common_factors(dim)
        if positive := [f for f in shared if self._nonnegative(f - 1)]:
            others = [f for f in shared if f not in positive]
            return [(sign, dims.product([*others, rest]))]
        if sign == UNEQUAL and (self._nonnegative(dim) or self._nonnegative(-dim)):
            return [(AT_LEAST, dim - 1 if self._nonnegative(dim) else -dim - 1)]
        if sign != AT_LEAST and dim.terms[0][1] < 0:
            return [(sign, -dim)]
        factors = dimforms.factors(dim + 1 if sign == AT_LEAST else dim)
        if sign == AT_LEAST and len(factors) > 1 and all(map(self._nonnegative, factors)):
            return [(AT_LEAST, each - 1) for each in factors]  # a product of at least 1
        below = dimforms.excess(-dim) if sign == AT_LEAST else None  # -max(below, 0) is at least 0
        if below is not None:
            return [(AT_LEAST, -below)]
        quotient = dimforms.quotient(dim) if sign == AT_LEAST else None
        if quotient is not None:
            return [(AT_LEAST, quotient)]
        bounded = dimforms.bounded(dim) if sign == AT_LEAST else ()
        if bounded:
            return [(AT_LEAST, each) for each in bounded]
        over = dimforms.excess(factors[0]) if len(factors) == 1 else None  # max(over, 0) is 0, or at least 1
        if over is not None and sign != UNEQUAL:
            return [(AT_LEAST, -over if sign == EQUAL else over - 1)]
        return None

    def _solve(self, dim: Dim) -> None:
        """Eliminate the newest symbol that occurs alone with the coefficient 1 or -1.

        Where there are unbacked ones it is the last of these, or none: the others are known without it.
        """
        assert not isinstance(dim, int)
        last = [s for s in self.unbacked if s in dim.symbols][-1:]
        for symbol in last or sorted(dim.symbols, reverse=True):
            step = dims.coefficient(dim, symbol)
            if step in (1, -1):
                rest = dim - dims.of_atom(symbol) * step
                found = {symbol: rest * -step}
                self.solved = {s: dims.substitute(d, found) for s, d in self.solved.items()} | found
                written = ((dims.substitute(d, found), n) for d, n in self.constants.items())
                self.constants = {d: n for d, n in written if not isinstance(d, int)}
                return self._solve_constants()

    def _solve_constants(self) -> None:
        """A symbol that has come to be a constant is solved: what is made of it mentions it no longer.

        It is a fact of its own, since those that it follows from are told in terms of symbols that are not solved.
        """
        for dim, number in list(self.constants.items()):
            if any(dim is dims.of_atom(s) for s in dim.symbols - self.solved.keys()):  # type: ignore[union-attr]
                self.facts.append(Fact(EQUAL, dim - number, self.where()))
                return self._solve(dim - number)

    def _raise_low(self, dim: Dim) -> None:
        """symbol - bound >= 0 raises what the symbol is known to be at least."""
        if isinstance(dim, int) or len(dim.symbols) != 1:
            return
        (symbol,) = dim.symbols
        if dims.coefficient(dim, symbol) != 1:
            return
        bound = -(dim - dims.of_atom(symbol))
        before = self.lows.get(symbol)
        low = dims.as_symbol(before).lo if before is not None else symbol.lo
        if isinstance(bound, int) and bound > low:
            self.lows[symbol] = dims.symbol(symbol.name, bound, hint=symbol.hint)


def undecided(sizes: Sizes, dim: Dim) -> Undecided:
    """The error of code that asks for what only the program finds out."""
    names = sorted({sizes.unbacked[s] for s in dims.symbols(dim) if s in sizes.unbacked})
    return Undecided(
        "data-dependent-size", f"what comes next depends on a size that {' and '.join(names)} finds out when the graph "
        "runs", "State what is known of it with torch._check, or keep it out of Python's control flow.",
    )  # fmt: skip


def _is_small(dim: Dim) -> bool:
    """Does `dim == 0` ask whether something is empty, or a single one?"""
    assert not isinstance(dim, int)
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    return abs(constant) <= 1 and len({c > 0 for c in terms.values()}) == 1 and not dimforms.has_remainder(dim)


def _halves(dim: Dim) -> tuple[Dim, Dim]:
    """(a, b) without negative terms, where dim == a - b."""
    if isinstance(dim, int):
        return (dim, 0) if dim >= 0 else (0, -dim)
    left: Dim = 0
    right: Dim = 0
    for monomial, coefficient in dim.terms:
        term = dims.product(map(dims.of_atom, monomial)) * abs(coefficient)
        left, right = (left + term, right) if coefficient > 0 else (left, right + term)
    return left, right
