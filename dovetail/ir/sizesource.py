"""Expressions over sizes as plain Python: what the residual computes and guards check."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.source import Attr, Computed, Item, Source

#: What the texts call, under names that no parameter of the user's has.
NAMES = {"_min": min, "_max": max}
LONGEST = 64  # symbols in one expression

_WORD = re.compile(r"[A-Za-z_']\w*")


def size_of(tensor: Source, dimension: int) -> Source:
    """The size of one dimension of a tensor."""
    return Item(Attr(tensor, "shape"), dimension)


def source_of(dim: Dim, symbols: Mapping[Symbol, Source]) -> Source:
    """The path to a size, or the expression of sizes."""
    template, operands = filled(str(dim), dims.symbols(dim), symbols)
    return operands[0] if template == "{}" else Computed(f"({template})", operands)


def filled(text: str, known: frozenset[Symbol], symbols: Mapping[Symbol, Source]) -> tuple[str, tuple[Source, ...]]:
    """The text as a template: holes for the symbols, and what belongs into them, in order."""
    by_name = {symbol.name: symbols[symbol] for symbol in known}
    operands: list[Source] = []

    def hole(found: re.Match[str]) -> str:
        word = found.group()
        if word in by_name:
            operands.append(by_name[word])
            return "{}"
        return f"_{word}" if f"_{word}" in NAMES else word

    return _WORD.sub(hole, text), tuple(operands)


def shown(source: Source) -> str:
    """The expression as users read it."""
    text = source.name()
    text = text[1:-1] if text[0] == "(" and text[-1] == ")" else text
    return re.sub(r"\b_(min|max)\(", r"\1(", text)


def too_long(dim: Dim) -> bool:
    """Is the expression so long that the size is better a constant?"""
    return len(_WORD.findall(str(dim))) > LONGEST
