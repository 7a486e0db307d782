"""What a compilation relied on about sizes, as guards: few, and those that others imply left out."""

from __future__ import annotations

import linecache
from dataclasses import replace
from typing import Any

from dovetail.errors import SpecializedDimension
from dovetail.ir import dims
from dovetail.ir.captured import Captured
from dovetail.ir.dims import Symbol
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.sizesource import filled, shown
from dovetail.ir.source import Attr, Computed, Item, Source
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, Fact, Sizes


def with_size_guards(captured: Captured) -> Captured:
    """The region with a guard for each fact about sizes; called when no later stage can rely on more."""
    if captured.sizes is None or not captured.sizes.facts:
        return captured
    found = [_guard(fact, captured) for fact in needed(captured.sizes)]
    return replace(captured, guards=(*captured.guards, *found))


def needed(sizes: Sizes) -> list[Fact]:
    """The facts that no other implies, in terms of the fewest symbols. Those about unbacked sizes are the program's."""
    facts = [f for f in sizes.facts if not sizes.is_unbacked(f.dim)]
    equal = [f for f in facts if f.sign == EQUAL]
    constants = [f for f in equal if _is_constant(f)]
    known = {symbol: sizes.hints[symbol] for f in constants for symbol in dims.symbols(f.dim)}
    kept: list[Fact] = []
    rest = [replace(f, dim=dims.substitute(f.dim, sizes.solved)) for f in facts if f.sign != EQUAL]
    for k, fact in enumerate(rest):
        others = [*kept, *rest[k + 1 :]]
        if not _implied(fact, others):
            kept.append(fact)
    return [*(f for f in equal if f in constants or dims.substitute(f.dim, known) != 0), *kept]


def _is_constant(fact: Fact) -> bool:
    """Does it say that one symbol has one value?"""
    found = dims.symbols(fact.dim)
    return len(found) == 1 and dims.coefficient(fact.dim, *found) in (1, -1)


def _implied(fact: Fact, others: list[Fact]) -> bool:
    bounds = [0, *(f.dim for f in others if f.sign == AT_LEAST)]
    if fact.sign == AT_LEAST:
        return any(dims.known_nonnegative(fact.dim - bound) for bound in bounds)
    if any(f.sign == fact.sign and (f.dim is fact.dim or f.dim is -fact.dim) for f in others):
        return True
    return any(dims.known_nonnegative(side - 1 - bound) for side in (fact.dim, -fact.dim) for bound in bounds)


def _guard(fact: Fact, captured: Captured) -> Guard:
    sources = {symbol: origin.source for symbol, origin in captured.symbols.items()}
    condition = Computed(*filled(f"({fact})", dims.symbols(fact.dim), sources))
    return Guard(_root(condition.operands[0]), GuardKind.SIZE, condition, fact.where)


def _root(source: Source) -> Source:
    """The tensor that a size belongs to, or the number itself."""
    if isinstance(source, Item) and isinstance(source.base, Attr) and source.base.field in ("shape", "stride()"):
        return source.base.base
    return source


# ---------------------------------------------------------------- what the user reads


def refuse_specialized(captured: Captured) -> None:
    """Raise SpecializedDimension if a dimension that the user marked dynamic became a constant."""
    for symbol, origin in captured.symbols.items():
        if origin.marked:
            value = captured.sizes.resolve(origin.dim)
            if isinstance(value, int):
                name, where = origin.source.name(), _cause(captured.sizes, symbol)
                raise SpecializedDimension(name, value, where, line_text(where))


def _cause(sizes: Sizes, symbol: Symbol) -> str:
    """The user's line that made a constant of it."""
    equal = [f for f in sizes.facts if f.sign == EQUAL and not sizes.is_unbacked(f.dim)]
    direct = [f for f in equal if symbol in dims.symbols(f.dim)]
    return (direct or equal)[-1].where


def line_text(where: str) -> str:
    """The text of a line given as `file:line`; empty where it cannot be read."""
    filename, _, line = where.rpartition(":")
    return linecache.getline(filename, int(line)).strip() if line.isdigit() else ""


def report(captured: Captured) -> str:
    """For the log `dynamic`: each symbol, and what the entry relies on, with the lines that made it."""
    sizes, lines = captured.sizes, []
    if not captured.symbols and not captured.constants and not (sizes and sizes.unbacked):
        return ""
    for name, reason in captured.constants.items():
        lines += [f"{name} is a constant: {reason}", f"    another value compiles anew. {REMEDY}"]
    kept = needed(sizes)
    for symbol, origin in captured.symbols.items():
        value = sizes.resolve(origin.dim)
        now = f"= {value}" if value is not origin.dim else f"any value, {sizes.hints[symbol]} in this call"
        lines.append(f"{symbol.name}: {origin.source.name()}, {now}")
    for symbol, operator in sizes.unbacked.items():
        if sizes.places[symbol]:  # others are the same ones, seen by later stages
            lines.append(f"{symbol.name}: what {operator} finds out{_at(sizes.places[symbol])}")
    for fact in kept:
        lines.append(f"relies on {_words(fact, captured)}{_at(fact.where or 'code generation')}")
        if fact.sign == EQUAL and len(dims.symbols(fact.dim)) == 1:
            lines.append(f"    another value compiles anew. {REMEDY}")
    checked = [f for f in sizes.facts if sizes.is_unbacked(f.dim) and f.where]
    return "\n".join([*lines, *(f"checks, when it runs, {fact}{_at(fact.where)}" for fact in checked)])


def _at(where: str) -> str:
    """A place with its line."""
    line = line_text(where)
    return f"  # {where}: {line}" if line else f"  # {where}"


REMEDY = "Keep the size out of Python's control flow and of arguments that must be constants, or mark_static it."


def _words(fact: Fact, captured: Captured) -> str:
    guard: Any = _guard(fact, captured)
    return shown(guard.payload)
