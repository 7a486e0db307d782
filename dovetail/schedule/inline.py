"""Put a producer's expression where its value is read.

before:  t[i, j] = a[i, j] + 1;   out[i, j] = exp(t[i, j])
after:   out[i, j] = exp(a[i, j] + 1)

A producer is inlined when its value is read in one group only and not computed more often than it
is now, or when computing it again costs less than reading it back.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import loads, nodes, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import (
    Check,
    Const,
    Expr,
    Group,
    Item,
    Load,
    Loop,
    Op,
    Program,
    Reduce,
    Statement,
    Store,
    rewrite,
)
from dovetail.schedule.cost import CHEAP, big_loads, cost
from dovetail.schedule.simplify import Simplifier

#: A kernel's expression is not grown beyond this many distinct nodes.
LARGEST = 400


def inline(program: Program, exact_rounding: bool) -> Program:
    """Inline pointwise producers into the groups that read them. Linear in the program's size."""
    kept = _kept_in_memory(program)
    readers = _readers(program)
    bodies: dict[str, Store] = {}
    items: list[Item] = []
    simplifier = Simplifier(exact_rounding)
    for original in program.items:
        item = simplifier.item(_Rewriter(bodies).group(original) if isinstance(original, Group) else original)
        if item is None:
            continue
        if isinstance(item, Group):
            store = _sole_store(item)
            if store is not None and store.buffer.name not in kept and _worthwhile(store, item, readers):
                bodies[store.buffer.name] = store
        items.append(item)
    return remove_dead(program.with_items(tuple(items)))


def remove_dead(program: Program) -> Program:
    """Drop groups whose every result is read by nobody, from the end backwards."""
    roots = view_roots(program)
    needed = {roots.get(n, n) for n in output_buffers(program)} | set(output_buffers(program))
    kept: list[Item] = []
    for item in reversed(program.items):
        checks = isinstance(item, Group) and any(isinstance(s, Check) for s in item.statements())
        if isinstance(item, Group) and not checks and not needed & writes(item).keys():
            continue
        kept.append(item)
        for name in reads(item):
            needed |= {name, roots.get(name, name)}
    return program.with_items(tuple(reversed(kept)))


def _kept_in_memory(program: Program) -> set[str]:
    """Buffers that something other than a group reads, or that several groups write."""
    kept = set(output_buffers(program))
    times: Counter[str] = Counter()
    for item in program.items:
        times.update(writes(item).keys())
        if not isinstance(item, Group):
            kept |= reads(item).keys()
    return kept | {name for name, n in times.items() if n > 1}


def _readers(program: Program) -> dict[str, list[tuple[Group, Load]]]:
    found: dict[str, list[tuple[Group, Load]]] = defaultdict(list)
    for item in program.items:
        if isinstance(item, Group):
            for load in loads(item):
                found[load.buffer.name].append((item, load))
    return found


def _sole_store(group: Group) -> Store | None:
    """The only statement of a group that computes one element of one buffer for each outer index."""
    if len(group.loops) != 1 or group.loops[0].inner or len(group.loops[0].body) != 1:
        return None
    statement = group.loops[0].body[0]
    if not isinstance(statement, Store):
        return None
    plain = {dims.as_symbol(r) for r in group.outer}
    for index, size in zip(statement.index, statement.buffer.sizes, strict=True):
        if index == 0 and size == 1:
            continue
        symbol = next(iter(dims.symbols(index)), None)
        if symbol not in plain or index is not dims.symbol(symbol.name, 0, symbol.extent) or symbol.extent != size:
            return None
        plain.discard(symbol)
    return None if plain else statement


def _worthwhile(store: Store, group: Group, readers: dict[str, list[tuple[Group, Load]]]) -> bool:
    uses = readers[store.buffer.name]
    price = cost(store.value)
    cheap = price <= CHEAP and big_loads(store.value) <= 1
    if cheap:
        return True
    if len({id(g) for g, _ in uses}) > 1 or sum(1 for _ in nodes([store.value])) > LARGEST:
        return False
    distinct = {load for _, load in uses}
    return len(distinct) == 1 and all(not _repeats(g, load) for g, load in uses)


def _repeats(group: Group, load: Load) -> bool:
    """Is the loaded element needed again for other values of the fastest range?"""
    ranges = [*group.outer, *(r for loop in group.loops for r in loop.inner)]
    varying = {dims.as_symbol(r) for r in ranges if dims.as_symbol(r).extent != 1}
    return bool(varying - load.symbols)


class _Rewriter:
    """Replaces loads of inlined producers; one memo for each group."""

    def __init__(self, bodies: dict[str, Store]) -> None:
        self.bodies = bodies
        self.memo: dict[Expr, Expr] = {}

    def group(self, group: Group) -> Group:
        if not any(load.buffer.name in self.bodies for load in loads(group)):
            return group
        loops = tuple(Loop(loop.inner, tuple(map(self.statement, loop.body))) for loop in group.loops)
        return Group(group.name, group.outer, loops, group.locals)

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Store):
            return Store(statement.buffer, statement.index, self.expr(statement.value))
        if isinstance(statement, Reduce):
            return Reduce(statement.name, statement.kind, self.expr(statement.value), statement.dtype)
        return Check(self.expr(statement.condition), statement.message)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, {}, self.memo, self.leaf)

    def leaf(self, node: Expr) -> Expr | None:
        body = self.bodies.get(node.buffer.name) if isinstance(node, Load) else None
        if body is None:
            return None
        assert isinstance(node, Load)
        mapping: dict[Symbol, Dim] = {}
        for target, index in zip(body.index, node.index, strict=True):
            for symbol in dims.symbols(target):
                mapping[symbol] = index
        value = rewrite(body.value, mapping, {})
        return value if node.mask is None else under_mask(value, node.mask)


def under_mask(value: Expr, mask: Expr) -> Expr:
    """`value` where `mask` holds, zero elsewhere, touching memory only where it holds."""

    def masked(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        inside = mask if node.mask is None else Op("and", (node.mask, mask), torch.bool)
        return Load(node.buffer, node.index, inside)

    zero = Const(False if value.dtype is torch.bool else 0.0 if value.dtype.is_floating_point else 0, value.dtype)
    return Op("where", (mask, rewrite(value, {}, {}, masked), zero), value.dtype)
