"""The symbols of sizes that differ from call to call, and the graph's inputs for expressions over them."""

from __future__ import annotations

import keyword
import re
from dataclasses import field
from typing import Any

import torch
import torch.fx

from dovetail.capture.values.base import Session
from dovetail.ir import dims
from dovetail.ir.captured import GraphInput, Origin
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.sizesource import NAMES, source_of
from dovetail.ir.source import Source
from dovetail.ir.varying import Varying
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, MARKED, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, is_size, symint

Bounds = tuple[int | None, int | None]


@dataclass
class Known:
    """One symbol: where it comes from first, all sizes that share it, and what the user said of it."""

    dim: Dim
    source: Source
    names: list[str]
    size: int
    bounds: Bounds = (None, None)
    marked: bool = False


@dataclass
class SizeTable:
    """What one capture knows of sizes that vary."""

    sizes: Sizes
    varying: Varying
    symbols: dict[Symbol, Known] = field(default_factory=dict)
    nodes: dict[Dim, Any] = field(default_factory=dict)  # placeholders of sizes
    seen: dict[str, int] = field(default_factory=dict)  # all sizes of tensors from outside
    numbers: dict[Source, Dim] = field(default_factory=dict)
    unbacked: dict[Symbol, tuple[Any, int | None]] = field(default_factory=dict)  # the node that tells it, and where
    counted: dict[Any, Any] = field(default_factory=dict)  # integers that the graph computes, as sizes
    refused: int = 0  # who is at work does not know unbacked sizes
    repeatable: bool = True  # has nothing been done that shows when the graph finds an unbacked size to be another?
    stated: set[Any] = field(default_factory=set)  # facts about those that the program checks itself

    @property
    def sources(self) -> dict[Symbol, Source]:
        """Where the symbols come from."""
        return {symbol: known.source for symbol, known in self.symbols.items()}

    @property
    def origins(self) -> dict[Symbol, Origin]:
        """The same as later stages see it."""
        return {symbol: Origin(known.dim, known.source, known.marked) for symbol, known in self.symbols.items()}


def new_symbol(
    s: Session, source: Source, value: int, names: list[str], bounds: Bounds = (None, None), marked: bool = False
) -> Dim:
    """A symbol for a number from outside; `names` are the sizes that share it. The entry relies on the bounds."""
    table = s.table
    s.residual.names.update(NAMES)
    dim = table.sizes.symbol(f"s{len(table.symbols)}", value)
    table.symbols[dims.as_symbol(dim)] = Known(dim, source, names, value, bounds, marked)
    where, table.sizes.where = table.sizes.where, lambda: MARKED
    if bounds[0] is not None:
        table.sizes.holds(AT_LEAST, dim - bounds[0])
    if bounds[1] is not None:
        table.sizes.holds(AT_LEAST, bounds[1] - dim)
    table.sizes.where = where
    return dim


def size_node(s: Session, dim: Dim) -> Any:
    """The graph input for a size."""
    node = s.table.nodes.get(dim)
    if node is None:
        source = source_of(dim, s.table.sources)
        node = s.table.nodes[dim] = placeholder_of(s, source)
        node.meta["fake"] = fake = symint(s.table.sizes, dim)
        s.taken.inputs.append((node, GraphInput(source, fake)))
    return node


def settle(s: Session) -> None:
    """Numbers and sizes that the entry came to rely on after all are constants of the graph."""
    relied = {g.source for g in s.relied.guards if g.kind is GuardKind.EQUAL}
    known = {node: node.meta["fake"] for source, node in s.taken.numbers.items() if source in relied}
    for dim, node in s.table.nodes.items():
        size = s.table.sizes.resolve(dim)
        if isinstance(size, int) and not s.table.sizes.is_unbacked(dim):
            known[node] = size
    for node in known:
        for user in list(node.users):
            user.args = torch.fx.map_arg(user.args, lambda n: known.get(n, n))
            user.kwargs = torch.fx.map_arg(user.kwargs, lambda n: known.get(n, n))


def bind_symbols(s: Session) -> set[Any]:
    """Placeholders without users that tell the graph symbols which its other inputs do not."""
    needed, given = set(), set()
    if not s.table.symbols:
        return set()
    for node in s.root.nodes:
        fake = node.meta.get("fake")
        found = dims_of(fake)
        if node.op == "placeholder":
            given |= set(found) if node.users else set()
        if node.op != "placeholder" or node.users:
            needed |= {symbol for dim in found for symbol in dims.symbols(dim)}
    missing = [known.dim for symbol, known in s.table.symbols.items() if symbol in needed and known.dim not in given]
    return {size_node(s, dim) for dim in missing}


def dims_of(fake: Any) -> list[Dim]:
    """The Dims in what an operation takes or gives."""
    return [dim_of(n) for n in sizes_in(fake)]


def sizes_in(fake: Any) -> list:
    """The sizes and strides of tensors, and integers with symbols, in what an operation takes or gives."""
    if isinstance(fake, torch.Tensor):
        if fake.layout is torch.jagged:
            return []  # an entry holds for one size of each tensor that it is made of
        return [*fake.shape, *(fake.stride() if fake.layout is torch.strided else ())]
    if isinstance(fake, (tuple, list)):
        return [n for item in fake for n in sizes_in(item)]
    if isinstance(fake, slice):
        return sizes_in((fake.start, fake.stop, fake.step))
    return [fake] if is_size(fake) else []


# ---------------------------------------------------------------- inputs of the graph

# In the order in which capture comes to need them.


def placeholder_of(s: Session, source: Source) -> torch.fx.Node:
    """A new input for what the source leads to, after all others."""
    name = re.sub(r"\W+", "_", source.name()).strip("_").lower()[:40] or "arg"
    name = f"arg_{name}" if name[0].isdigit() or keyword.iskeyword(name) or name == "self" else name
    name = name if name not in s.taken.names else f"{name}_{len(s.taken.names)}"
    s.taken.names.add(name)
    with s.root.inserting_after(s.taken.last or s.root._root):
        s.taken.last = s.root.placeholder(name)
    return s.taken.last
