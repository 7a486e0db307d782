"""What a program relied on about sizes, beside what the user has declared: ranges, conditions, or an error.

Capture has made a symbol for every dimension that is declared. Facts that make several of them one size, or the size of
one follow from others, are in how sizes are written; what bounds a size is its range; the rest are conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail import guards
from dovetail.errors import InvalidArgument, SpecializedDimension
from dovetail.exporting.arguments import VALUE, Arguments
from dovetail.exporting.formulas import ExportFormulas, behind
from dovetail.exporting.shapes import Place, Wanted
from dovetail.exporting.signature import Condition, Size
from dovetail.ir import dims
from dovetail.ir.captured import Captured
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, DECLARED, EQUAL, LEAST, MARKED, UNEQUAL, Fact, Sizes


@dataclass(frozen=True)
class DeclaredSizes:
    """`dims` are the sizes of declared dimensions, `names` those of the symbols in them, by what Dims call these."""

    dims: dict[Place, Dim]
    names: dict[str, str]
    formulas: ExportFormulas
    sizes: tuple[Size, ...]
    conditions: tuple[Condition, ...]


MOST = 2**31  # a limit above is one of PyTorch's bookkeeping


@dataclass
class Range:
    """What one size may be, and the lines that rely on its bounds."""

    low: int
    high: int | None = None
    low_from: str = ""
    high_from: str = ""

    def narrow(self, fact: Fact) -> bool:
        """Take the fact in, if it bounds the one size that it is about."""
        (symbol, *others) = dims.symbols(fact.dim)
        step = dims.coefficient(fact.dim, symbol)
        if others or not isinstance(step, int) or not step:
            return False
        rest = fact.dim - dims.of_atom(symbol) * step
        if not isinstance(rest, int):
            return False
        low, value = step > 0, -(rest // step) if step > 0 else rest // -step
        if fact.sign == UNEQUAL and step in (1, -1) and (value := -rest * step) in (self.low, self.high):
            low = value == self.low
            value += 1 if low else -1
        elif fact.sign != AT_LEAST:
            return False
        if low and value > self.low:
            self.low, self.low_from = value, fact.where
        if not low and value < MOST and (self.high is None or value < self.high):
            self.high, self.high_from = value, fact.where
        return True


def settle(
    captured: Captured, wanted: Mapping[Place, Wanted], symbols: Mapping[Place, Symbol], given: Arguments
) -> DeclaredSizes:
    """`symbols` are those of the declared dimensions, some of which capture never looked at.

    Raises SpecializedDimension for a dimension that became a constant but must not, InvalidArgument where the program
    relies on more than the declarations say.
    """
    guards.refuse_specialized(captured)
    sizes: Sizes = captured.sizes
    _refuse_relations(captured, wanted, symbols, given)
    for place, said in wanted.items():
        sizes.bound(dims.of_atom(symbols[place]), *said.bounds)
        if said.name is not None:
            sizes.declare(dims.of_atom(symbols[place]), said.name, said.scale, said.offset)
    guards.refuse_specialized(captured)
    _refuse_constant_numbers(sizes, wanted, symbols, given)
    known = {place: sizes.resolve(dims.of_atom(symbol)) for place, symbol in symbols.items()}
    free = {symbol: place for place, symbol in symbols.items() if known[place] is dims.of_atom(symbol)}
    ranges = {symbol: Range(symbol.lo) for symbol in free}
    facts = (replace(f, dim=dims.substitute(f.dim, sizes.solved)) for f in guards.sizes_needed(sizes))
    left = [f for f in facts if not isinstance(f.dim, int) and not _narrows(f, ranges)]
    left = [f for f in left if not _narrows(f, ranges)]  # some exclude a bound that was found later
    for symbol, found in ranges.items():
        for place in (p for p, dim in known.items() if dim is dims.of_atom(symbol)):
            _refuse_bounds(found, wanted[place], given.place(*place))
    names = _names(free, wanted, known)
    numbers = {given.source(place[0]): known[place] for place in wanted if place[1] == VALUE}
    formulas = ExportFormulas(captured, names, numbers)
    made = (_size(names[s.name], free[s], sizes.hints[s], r) for s, r in ranges.items())
    sizes_found = tuple(made)
    conditions = (*(_condition(fact, formulas) for fact in left), *formulas.conditions())
    kept = tuple(c for c in dict.fromkeys(conditions) if not any(size.implies(c) for size in sizes_found))
    return DeclaredSizes(known, names, formulas, sizes_found, kept)


def _size(name: str, place: Place, example: int, found: Range) -> Size:
    low = None if found.low == LEAST else found.low
    return Size(name, *place, example, low, found.high, _told(found.low_from), _told(found.high_from))


def without_constants(
    captured: Captured, wanted: Mapping[Place, Wanted], numbers: Mapping[str, Place], given: Arguments
) -> dict[Place, Wanted]:
    """Without numbers whose value the program relies on. Raises SpecializedDimension for one that must not be."""
    found = dict(wanted)
    for guard in captured.guards:
        place = numbers.get(guard.source.name()) if guard.source is not None and guard.kind is GuardKind.EQUAL else None
        if place is not None and (said := found.pop(place, None)) is not None and said.must:
            line = guards.line_text(guard.user_line)
            raise SpecializedDimension(given.place(*place), given.size(*place), guard.user_line, line)
    return found


def _refuse_constant_numbers(
    sizes: Sizes, wanted: Mapping[Place, Wanted], symbols: Mapping[Place, Symbol], given: Arguments
) -> None:
    for place, said in wanted.items():
        value = sizes.resolve(dims.of_atom(symbols[place]))
        if place[1] == VALUE and said.must and isinstance(value, int):
            where = next((f.where for f in reversed(sizes.facts) if symbols[place] in dims.symbols(f.dim)), "")
            raise SpecializedDimension(given.place(*place), value, where, guards.line_text(where))


def _narrows(fact: Fact, ranges: Mapping[Symbol, Range]) -> bool:
    symbol = next(iter(dims.symbols(fact.dim)))
    return symbol in ranges and ranges[symbol].narrow(fact)


def _condition(fact: Fact, formulas: ExportFormulas) -> Condition:
    sign, left, right = formulas.of_text(str(fact), dims.symbols(fact.dim))
    return Condition(left, sign, right, _told(fact.where))


def _told(where: str) -> str:
    """The line, if it is one that its user can read."""
    return "" if where in (DECLARED, MARKED) or where.startswith("<") else where


def _is_derived(wanted: Wanted) -> bool:
    return (wanted.scale, wanted.offset) != (1, 0)


def _refuse_relations(
    captured: Captured, wanted: Mapping[Place, Wanted], symbols: Mapping[Place, Symbol], given: Arguments
) -> None:
    """Sizes with different names are declared to have nothing to do with each other."""
    sizes = captured.sizes
    named = {s: (p, wanted[p]) for p, s in symbols.items() if wanted[p].name is not None}
    roots = {s: dims.symbol(f"{w.name}'") * w.scale + w.offset for s, (_, w) in named.items()}
    for fact in sizes.facts:
        if fact.sign != EQUAL or fact.where == DECLARED or sizes.is_unbacked(fact.dim):
            continue
        if dims.substitute(fact.dim, roots) == 0:
            continue
        if not any(_is_number(dims.coefficient(fact.dim, s)) for s in dims.symbols(fact.dim)):
            continue  # no size follows from the others: it is a condition
        involved = [named[s] for s in sorted(behind(dims.symbols(fact.dim), captured)) if s in named]
        if len({w.name for _, w in involved}) > 1:
            words = " and ".join(f"{given.place(*p)} ({w.name})" for p, w in involved)
            raise _contradiction(
                f"{words} are declared as sizes of their own", fact.where, _in_names(fact, roots),
                "Give sizes that are equal the same name, declare one as computed from the other, or let Dim.AUTO "
                "find out.",
            )  # fmt: skip


def _is_number(step: Any) -> bool:
    return isinstance(step, int) and step != 0


def _in_names(fact: Fact, roots: Mapping[Symbol, Dim]) -> str:
    """The fact with the user's names for sizes."""
    return str(replace(fact, dim=dims.substitute(fact.dim, roots))).replace("'", "")


def _refuse_bounds(found: Range, wanted: Wanted, place: str) -> None:
    """Bounds that the user gave are promises, but for sizes that may even become constants."""
    low, high = wanted.bounds if wanted.must else (None, None)
    for name, declared, actual, where in (
        ("min", low, found.low, found.low_from), ("max", high, found.high, found.high_from),
    ):  # fmt: skip
        if declared is not None and actual != declared and _told(where):
            said = f"{place} is declared with {name}={declared}"
            raise _contradiction(said, where, f"{name}={actual}", "Declare that bound.")


def _contradiction(said: str, where: str, relied: str, remedy: str) -> InvalidArgument:
    line = guards.line_text(where)
    return InvalidArgument(
        f"export: dynamic_shapes: {said}, but {where} relies on {relied}"
        + (f"\n    {line}" if line else "")
        + f"\n  What to do: {remedy}"
    )


def _names(free: Mapping[Symbol, Place], wanted: Mapping[Place, Wanted], known: Mapping[Place, Dim]) -> dict[str, str]:
    """The user's names of sizes where they have one."""
    found: dict[str, str] = {}
    for symbol in free:
        mine = [wanted[p] for p, dim in known.items() if dim is dims.of_atom(symbol)]
        plain = [w.name for w in mine if w.name is not None and not _is_derived(w) and w.name not in found.values()]
        found[symbol.name] = plain[0] if plain else symbol.name
    taken = [name for symbol, name in found.items() if name != symbol]
    return {symbol: name if name != symbol or name not in taken else f"{name}_" for symbol, name in found.items()}
