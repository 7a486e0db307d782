"""Sizes, and integers in tensors, that are only known when the graph runs.

    n = x[mask].shape[0]            a number of the graph, with a Dim over unbacked symbols (ops/fake/symbolic/sizes.py)
    torch._check(n <= 64)           a node that raises unless it holds, and a fact that what follows relies on
    if n > 64:                      decided where the facts allow only one outcome; else the graph ends here
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx

from dovetail.capture.numbers.graph_numbers import GraphNumber, InGraph, in_graph
from dovetail.capture.numbers.size_values import DimNumber, as_dim, size_value
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.tables.operator_names import COMPARE
from dovetail.capture.values.base import Const, Session, Value, boolean
from dovetail.capture.values.number import Precedence
from dovetail.ir import dims
from dovetail.ir.checks import assumed
from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim, Symbol
from dovetail.ops.fake import FakeTensor
from dovetail.ops.fake.symbolic.sizes import UNEQUAL, undecided
from dovetail.ops.fake.symbolic.symint import is_size, symint
from dovetail.ops.fake.symbolic.unbacked import INTEGERS, discovering

Node = torch.fx.Node


class UnbackedSize(DimNumber, GraphNumber):
    """A size, or an integer made of sizes, that is only known when the graph runs."""

    __slots__ = ("dim",)
    precedence = Precedence.UNBACKED

    def __init__(self, node: Node, dim: Dim) -> None:
        super().__init__(node, int)
        self.dim = dim

    def known(self, s: Session) -> bool | None:
        """Its truth; None where the facts leave it open."""
        return s.table.sizes.known(UNEQUAL, self.dim)

    def decide(self, s: Session, claim: tuple[str, Dim], sign: str, left: Value, right: Value) -> Value:
        known = s.table.sizes.known(*claim)
        return Claim(sign, left, right, claim) if known is None else boolean(known)

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        if s.graph is not s.root:
            return None
        return self.node, 1 if numbers else self.node.meta["fake"]


class Claim(InGraph):
    """`left sign right` of sizes, which nobody knows to be true or false; `claim` is the same as `(sign, Dim)`."""

    __slots__ = ("sign", "left", "right", "claim")
    cls = bool
    precedence = Precedence.GRAPH

    def __init__(self, sign: str, left: Value, right: Value, claim: tuple[str, Dim]) -> None:
        super().__init__()
        self.sign, self.left, self.right, self.claim = sign, left, right, claim

    def describe(self) -> str:
        return "whether a size that is only known when the graph runs is what the code compares it with"

    def known(self, s: Session) -> bool | None:
        """Its truth; None where the facts leave it open."""
        return s.table.sizes.known(*self.claim)


def allowed(s: Session) -> bool:
    """May operators of this graph have results of unbacked sizes? Sizes of inputs need not vary for it."""
    options = s.options
    wanted = options.capture_dynamic_output_shape_ops and (options.fullgraph or options.dynamic is not False)
    return wanted and s.graph is s.root and not s.table.refused


@contextlib.contextmanager
def unchanged_sizes(s: Session) -> Iterator[None]:
    """What runs inside knows no unbacked sizes: operators that would have them end the graph."""
    s.table.refused += 1
    try:
        yield
    finally:
        s.table.refused -= 1


def found_by(s: Session) -> AbstractContextManager[None]:
    """Operators that run on fakes inside find out sizes of this capture."""
    return discovering(s.table.sizes if allowed(s) else None)


def note(s: Session, node: Node, result: Any) -> None:
    """Remember where the unbacked symbols in an operator's result can be read."""
    table = s.table
    if isinstance(result, torch.Tensor):
        for k, size in enumerate(result.shape):
            _note(table, size, node, k)
    elif isinstance(result, torch.SymInt):
        _note(table, result, node, None)


def refuse_unread(s: Session) -> None:
    """End the graph where PyTorch has read an element by itself, as `x.view(t)` does, and something relies on it."""
    table = s.table
    lost = table.sizes.unbacked.keys() - table.unbacked.keys()
    if lost and any(not lost.isdisjoint(dims.symbols(fact.dim)) for fact in table.sizes.facts):
        s.unsupported(
            "data-dependent-value", "a tensor is used where an integer is expected",
            "Call .item() on it: the graph can then check what it relies on.",
        )


def _note(table: Any, size: Any, node: Node, place: int | None) -> None:
    if isinstance(size, torch.SymInt) and not is_size(size):  # a ragged one, which is no number
        return
    dim = size.node.dim if is_size(size) else size
    for symbol in sorted(dims.symbols(dim) & table.sizes.unbacked.keys() - table.unbacked.keys()):
        if dim is dims.of_atom(symbol):
            table.unbacked[symbol] = node, place


def _read(s: Session, symbol: Symbol) -> Node:
    node, place = s.table.unbacked[symbol]
    return node if place is None else s.graph.call_method("size", (node, place))


def unbacked_size(s: Session, dim: Dim) -> Value:
    """The number that a Dim with unbacked symbols stands for."""
    if s.graph is not s.root:
        raise undecided(s.table.sizes, dim)
    return UnbackedSize(node_of(s, dim), dim)


def node_of(s: Session, dim: Dim) -> Any:
    """The graph's node, or int, for a Dim."""
    if isinstance(dim, int):
        return in_graph(s, dim)
    if dim not in s.table.nodes and s.table.sizes.is_unbacked(dim):
        node = s.table.nodes[dim] = _new_node(s, dim, node_of)
        node.meta.update(fake=symint(s.table.sizes, dim), stack=s.stack())
    return s.size_node(dim)


def _new_node(s: Session, dim: Any, part: Callable[[Session, Dim], Any]) -> Node:
    """A new node for a Dim with unbacked symbols, at this place of the graph; `part` gives those of its parts."""
    symbol = next(iter(dim.symbols))
    if dims.of_atom(symbol) is not dim:
        return _sum(s, dim, part)
    node = _read(s, symbol)
    node.meta.setdefault("fake", symint(s.table.sizes, dim))
    node.meta.setdefault("stack", s.stack())
    return node


def _here(s: Session, dim: Dim) -> Any:
    """What has the Dim's value at this place of the graph."""
    return _new_node(s, dim, _here) if s.table.sizes.is_unbacked(dim) else node_of(s, dim)


def _sum(s: Session, dim: Any, part: Callable[[Session, Dim], Any]) -> Node:
    """Python's operators, one after the other. `part` gives the nodes of what it is made of."""

    def call(function: Any, left: Any, right: Any) -> Any:
        node = s.graph.call_function(function, (left, right))
        node.meta.update(fake=1, stack=s.stack())
        return node

    total: Any = None
    for monomial, coefficient in dim.terms:
        term: Any = in_graph(s, coefficient) if coefficient != 1 or not monomial else None
        for atom in monomial:
            if isinstance(atom, dims.Symbol):
                factor = part(s, dims.of_atom(atom))
            else:
                factor = call(_ATOMS[type(atom)], part(s, atom.left), part(s, atom.right))
            term = factor if term is None else call(operator.mul, term, factor)
        total = term if total is None else call(operator.add, total, term)
    return total


_ATOMS: dict[type, Any] = {
    dims.FloorDiv: operator.floordiv, dims.Mod: operator.mod, dims.Min: torch.sym_min, dims.Max: torch.sym_max,
}  # fmt: skip


# ---------------------------------------------------------------- integers in tensors


def takes(s: Session, fake: torch.Tensor) -> bool:
    """Are the tensor's elements sizes, once the program reads them?"""
    return allowed(s) and fake.dtype in INTEGERS


def item(s: Session, tensor: Any) -> Value | None:
    """`tensor.item()` of an integer; None where that is no size."""
    return _item(s, tensor.node) if takes(s, tensor.fake) and tensor.fake.numel() == 1 else None


def _item(s: Session, tensor: Node) -> Value:
    node = s.graph.call_method("item", (tensor,))
    with found_by(s):
        found = tensor.meta["fake"].item()
    node.meta.update(fake=found, stack=s.stack())
    note(s, node, found)
    return size_value(s, found)


def of_number(s: Session, number: Value) -> Any:
    """A size for an integer that the graph computes: the same each time; None where it cannot be one."""
    if type(number) is not GraphNumber or number.kind is not int or not allowed(s):
        return None
    if number.node not in s.table.counted:
        node = s.graph.call_function(torch.scalar_tensor, (number.node,), {"dtype": torch.int64})
        node.meta.update(fake=FakeTensor((), (), torch.int64, HOST), stack=s.stack())
        s.table.counted[number.node] = _item(s, node)
    return s.table.counted[number.node]


# ---------------------------------------------------------------- what is known of them


def claimed(s: Session, value: Value) -> Value | None:
    """`bool(value)` that nobody knows yet."""
    if not isinstance(value, (Claim, UnbackedSize)) or value.known(s) is not None:
        return None
    return value if isinstance(value, Claim) else value.compare(s, "!=", value, Const(0))


def check(s: Session, claim: Claim) -> None:
    """`torch._check`: the graph raises where it does not hold, and what follows relies on it."""
    sign, dim = claim.claim
    known = s.table.sizes
    left, right = (_side(s, side) for side in (claim.left, claim.right))
    _emit_check(s, torch._check, claim.sign, left, right)
    before = len(known.facts)
    known.expect(sign, known.resolve(dim), True)
    s.table.stated.update(known.facts[before:])


def _side(s: Session, value: Value) -> Any:
    dim = as_dim(s, value)
    assert dim is not None
    return node_of(s, dim)


def _emit_check(s: Session, check: Any, sign: str, left: Any, right: Any) -> Node:
    holds = s.graph.call_function(COMPARE[sign][0], (left, right))
    node = s.graph.call_function(check, (holds,))
    for made in (holds, node):
        made.meta.update(stack=s.stack(), fake=None)
    node.meta["mutates"] = True
    return node


def settle(s: Session) -> None:
    """What the capture came to rely on about unbacked sizes is checked by the graph too, as soon as it knows them.

    Where nothing that shows has been done by then, the program can be repeated.
    """
    table = s.table
    facts = [f for f in table.sizes.facts if table.sizes.is_unbacked(f.dim) and f not in table.stated]
    if not facts:
        return
    order = {node: k for k, node in enumerate(s.graph.nodes)}
    ends: dict[Node, Node] = {}
    made: list[Node] = []
    for fact in facts:
        known = dims.symbols(fact.dim) & table.unbacked.keys()
        last = max((table.unbacked[symbol][0] for symbol in known), key=order.__getitem__)
        with s.graph.inserting_before(ends.setdefault(last, last.next)):
            made.append(_emit_check(s, assumed, fact.sign, _here(s, fact.dim), 0))
    undone = True
    for node in s.graph.nodes:
        if node.target is assumed:
            node.args = (*node.args, undone)
        undone = undone and (node.op == "placeholder" or not impure(node) or node.target is assumed)
    table.repeatable = undone or all(node.args[1] for node in made)
