"""A functional graph in parts, between which sizes are found out that later parts depend on.

    Staged = inputs: name*, steps: Step*, outputs: (name | Dim | constant)*
    Step   = Part(graph, given, results)            a graph whose sizes are all told by what it is given
           | Call(name, operator, args, kwargs)     an operator that finds sizes out, or a view for one
           | Layout(name, sizes, strides)           the value as it was predicted to be laid out
           | Learn(symbol, text)                    where the size can be read
           | Check(fact)                            what the graph relies on, as soon as all of it is known

Values have the names of the graph's nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dovetail.ir.aten import AtenGraph
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Ref:
    """The value of a node, among arguments."""

    name: str


@dataclass(frozen=True)
class Part:
    """`given`: a Ref or a Dim for each input."""

    graph: AtenGraph
    given: tuple
    results: tuple[str, ...]


@dataclass(frozen=True)
class StagedCall:
    name: str
    operator: Any
    args: tuple
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LayoutCheck:
    """A tensor that has other strides is copied."""

    name: str
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    operator: str


@dataclass(frozen=True)
class Learn:
    symbol: Symbol
    text: str


@dataclass(frozen=True)
class SizeCheck:
    """`text` is true, or nothing that follows is."""

    text: str


Step = Part | StagedCall | LayoutCheck | Learn | SizeCheck


@dataclass(frozen=True)
class Staged:
    """`written` pairs the name of an input with that of its new value. `known` are expressions for symbols that the
    inputs tell. `draws`: are random numbers drawn?"""

    inputs: tuple[str, ...]
    constants: Mapping[str, Any]
    known: Mapping[Symbol, str]
    steps: tuple[Step, ...]
    outputs: tuple
    written: tuple[tuple[str, str], ...]
    draws: bool
    waits: str  # the operators that find sizes out
