"""Sizes, and integers in tensors, that are only known when the graph runs.

    n = x[mask].shape[0]            a number of the graph, with a Dim over late symbols (ops/fake/symbolic/sizes.py)
    torch._check(n <= 64)           a node that raises unless it holds, and a fact that what follows relies on
    if n > 64:                      decided where the facts allow only one outcome; else the graph ends here
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail.capture.numbers import size_values
from dovetail.capture.numbers.graph_numbers import in_graph
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.values.base import Const, Value, boolean
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.scalar import Claim, GraphNumber
from dovetail.ir import dims
from dovetail.ir.checks import assumed
from dovetail.ir.dims import Dim, Symbol
from dovetail.ops.fake.symbolic.sizes import UNEQUAL, undecided
from dovetail.ops.fake.symbolic.symint import symint
from dovetail.ops.fake.symbolic.unbacked import INTEGERS, discovering

if TYPE_CHECKING:
    from dovetail.capture.session import Session

Node = torch.fx.Node
LONGEST_LIST = 64

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def allowed(s: Session) -> bool:
    """May operators of this graph have results of late sizes?"""
    wanted = s.options.capture_dynamic_output_shape_ops and s.options.dynamic is not False
    return wanted and s.graph is s.root and not s.table.refused


@contextlib.contextmanager
def unchanged_sizes(s: Session) -> Iterator[None]:
    """What runs inside knows no late sizes: operators that would have them end the graph."""
    s.table.refused += 1
    try:
        yield
    finally:
        s.table.refused -= 1


def found_by(s: Session) -> AbstractContextManager[None]:
    """Operators that run on fakes inside find out sizes of this capture."""
    return discovering(s.table.sizes if allowed(s) else None)


def note(s: Session, node: Node, result: Any) -> None:
    """Remember where the late symbols in an operator's result can be read."""
    table = s.table
    if isinstance(result, torch.Tensor):
        for k, size in enumerate(result.shape):
            _note(table, size, node, k)
    elif isinstance(result, torch.SymInt):
        _note(table, result, node, None)


def refuse_unread(s: Session) -> None:
    """End the graph where PyTorch has read an element by itself, as `x.view(t)` does, and something relies on it."""
    table = s.table
    lost = table.sizes.late.keys() - table.late.keys()
    if lost and any(not lost.isdisjoint(dims.symbols(fact.dim)) for fact in table.sizes.facts):
        s.unsupported(
            "data-dependent-value", "a tensor is used where an integer is expected",
            "Call .item() on it: the graph can then check what it relies on.",
        )


def _note(table: Any, size: Any, node: Node, place: int | None) -> None:
    dim = size.node.dim if isinstance(size, torch.SymInt) else size
    for symbol in sorted(dims.symbols(dim) & table.sizes.late.keys() - table.late.keys()):
        if dim is dims.of_symbol(symbol):
            table.late[symbol] = node, place


def _read(s: Session, symbol: Symbol) -> Node:
    node, place = s.table.late[symbol]
    return node if place is None else s.graph.call_method("size", (node, place))


def number(s: Session, dim: Dim) -> Value:
    """The number that a Dim with late symbols stands for."""
    if s.graph is not s.root:
        raise undecided(s.table.sizes, dim)
    return GraphNumber(node_of(s, dim), int, dim)


def node_of(s: Session, dim: Dim) -> Any:
    """The graph's node, or int, for a Dim."""
    if isinstance(dim, int):
        return in_graph(s, dim)
    known = s.table.nodes.get(dim)
    if known is not None:
        return known
    if not s.table.sizes.is_late(dim):
        return s.size_node(dim)
    symbol = next(iter(dim.symbols))
    node = _read(s, symbol) if dims.of_symbol(symbol) is dim else _sum(s, dim, lambda d: node_of(s, d))
    node.meta.update(fake=symint(s.table.sizes, dim), stack=s.stack())
    s.table.nodes[dim] = node
    return node


def _sum(s: Session, dim: Any, part: Callable[[Dim], Any]) -> Node:
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
                factor = part(dims.of_symbol(atom))
            else:
                factor = call(_ATOMS[type(atom)], part(atom.left), part(atom.right))
            term = factor if term is None else call(operator.mul, term, factor)
        total = term if total is None else call(operator.add, total, term)
    return total


_ATOMS: dict[type, Any] = {
    dims.FloorDiv: operator.floordiv, dims.Mod: operator.mod, dims.Min: torch.sym_min, dims.Max: torch.sym_max,
}  # fmt: skip


# ---------------------------------------------------------------- integers in tensors


def item(s: Session, tensor: Any) -> Value | None:
    """`tensor.item()` of an integer; None where that is no size."""
    fake = tensor.fake
    if not allowed(s) or fake.dtype not in INTEGERS or fake.numel() != 1:
        return None
    node = s.graph.call_method("item", (tensor.node,))
    with found_by(s):
        found = fake.item()
    node.meta.update(fake=found, stack=s.stack())
    note(s, node, found)
    return size_values.size_value(s, found)


def listed(s: Session, tensor: Any, read: Callable[[Any, int], Any]) -> Value | None:
    """`tensor.tolist()` of a short vector of integers; `read` takes an item."""
    fake = tensor.fake
    if not fake.dim():
        return item(s, tensor)
    if not allowed(s) or fake.dtype not in INTEGERS or fake.dim() > 1 or type(fake.shape[0]) is not int:
        return None
    if fake.shape[0] > LONGEST_LIST:
        return None
    return ListValue([item(s, read(tensor, k)) for k in range(fake.shape[0])])


# ---------------------------------------------------------------- what is known of them


def compare(s: Session, sign: str, left: Any, right: Any) -> Value | None:
    """A truth where the facts settle it, else a claim; None where no late size takes part."""
    if not any(isinstance(v, GraphNumber) and v.dim is not None for v in (left, right)):
        return None
    a, b = size_values.as_dim(s, left), size_values.as_dim(s, right)
    if a is None or b is None:
        return None
    claim = size_values.CLAIMS[sign](a - b)
    known = s.table.sizes.known(*claim)
    return Claim(sign, left, right, claim) if known is None else boolean(known)


def claimed(s: Session, value: Any) -> Value | None:
    """`bool(value)` that nobody knows yet."""
    if isinstance(value, Claim):
        return value if truth(s, value) is None else None
    if not isinstance(value, GraphNumber) or value.dim is None or truth(s, value) is not None:
        return None
    return compare(s, "!=", value, Const(0))


def truth(s: Session, value: Any) -> bool | None:
    """Of a claim, or of a size; None where the facts leave it open."""
    if isinstance(value, Claim):
        return s.table.sizes.known(*value.claim)
    if isinstance(value, GraphNumber) and value.dim is not None:
        return s.table.sizes.known(UNEQUAL, value.dim)
    return None


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
    dim = size_values.as_dim(s, value)
    assert dim is not None
    return node_of(s, dim)


def _emit_check(s: Session, check: Any, sign: str, left: Any, right: Any) -> Node:
    holds = s.graph.call_function(SIGNS[sign], (left, right))
    node = s.graph.call_function(check, (holds,))
    for made in (holds, node):
        made.meta.update(stack=s.stack(), fake=None)
    node.meta["mutates"] = True
    return node


def settle(s: Session) -> None:
    """What the capture came to rely on about late sizes is checked by the graph too, as soon as it knows them.

    Where nothing that shows has been done by then, the program can be repeated.
    """
    table = s.table
    facts = [f for f in table.sizes.facts if table.sizes.is_late(f.dim) and f not in table.stated]
    if not facts:
        return
    order = {node: k for k, node in enumerate(s.graph.nodes)}
    ends: dict[Node, Node] = {}
    made: list[Node] = []
    for fact in facts:
        last = max(
            (table.late[symbol][0] for symbol in dims.symbols(fact.dim) & table.late.keys()), key=order.__getitem__
        )
        with s.graph.inserting_before(ends.setdefault(last, last.next)):
            made.append(_emit_check(s, assumed, fact.sign, _computed(s, fact.dim), 0))
    undone = True
    for node in s.graph.nodes:
        if node.target is assumed:
            node.args = (*node.args, undone)
        undone = undone and (node.op == "placeholder" or not impure(node) or node.target is assumed)
    table.repeatable = undone or all(node.args[1] for node in made)


def _computed(s: Session, dim: Dim) -> Any:
    """A node of its own for the Dim, at this place of the graph."""
    if not s.table.sizes.is_late(dim):
        return node_of(s, dim)
    symbol = next(iter(dims.symbols(dim)))
    if dims.of_symbol(symbol) is not dim:
        return _sum(s, dim, lambda d: _computed(s, d))
    node = _read(s, symbol)
    node.meta.setdefault("fake", symint(s.table.sizes, dim))
    node.meta.setdefault("stack", s.stack())
    return node
