"""Put a producer's expression where its value is read.

before:  t[i, j] = a[i, j] + 1;   out[i, j] = exp(t[i, j])
after:   out[i, j] = exp(a[i, j] + 1)

A producer is inlined when its value is read in one group only and not computed more often than it
is now, or when computing it again costs less than reading it back: it is made of one tensor, or its
readers have read what it is made of.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import torch

from dovetail.ir import dims
from dovetail.ir.devices import Traits, traits
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.launch import WINDOW
from dovetail.ir.liveness import loads, nodes, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import (
    DEEPEST,
    Check,
    Const,
    Expr,
    Group,
    Index,
    Item,
    Load,
    Loop,
    Op,
    Program,
    Store,
    map_exprs,
    rewrite,
)
from dovetail.schedule.fusion.cost import CHEAP, big, big_loads, cost, is_window
from dovetail.schedule.fusion.simplify import Simplifier
from dovetail.schedule.memory.lifetimes import Lifetimes

#: A kernel's expression is not grown beyond this many distinct nodes.
LARGEST = 400
#: Nor deeper than this: what is fused later must fit in `DEEPEST` as well.
DEEPEST_INLINED = DEEPEST // 4
#: Quotients and remainders of one another in an index; each level may name the one below it twice.
MOST_NESTED = 5
#: What is computed for each element of a window costs at most so much, its load included.
FOR_EACH = 2
#: A concatenation of at most this many parts is computed where it is read, by selection.
MOST_PIECES = 3


def inline(program: Program, exact_rounding: bool) -> Program:
    """Inline pointwise producers into the groups that read them. Linear in the program's size."""
    outside = _read_outside_groups(program)
    writers = Counter(name for item in program.items for name in writes(item))
    readers = _readers(program)
    bodies: dict[str, tuple[Store, ...]] = {}
    partial: dict[str, list[tuple[Store, Group]]] = defaultdict(list)
    items: list[Item] = []
    simplifier, lives = Simplifier(exact_rounding), Lifetimes(program)
    for original in program.items:
        item = simplifier.item(_Rewriter(bodies).group(original) if isinstance(original, Group) else original)
        if item is None:
            continue
        items.append(item)
        store = _sole_store(item) if isinstance(item, Group) else None
        if store is None or store.buffer.name in outside:
            continue
        pieces = partial[store.buffer.name]
        pieces.append((store, item))  # type: ignore[arg-type]
        if len(pieces) == writers[store.buffer.name] and _worthwhile(pieces, readers[store.buffer.name]):
            if lives.let(store.buffer.name, (load.buffer for s, _ in pieces for load in s.value.loads)):
                bodies[store.buffer.name] = tuple(s for s, _ in pieces)
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


def _read_outside_groups(program: Program) -> set[str]:
    """Buffers that something other than a group reads."""
    found = set(output_buffers(program))
    for item in program.items:
        if not isinstance(item, Group):
            found |= reads(item).keys()
    return found


def _readers(program: Program) -> dict[str, list[tuple[Group, Load]]]:
    found: dict[str, list[tuple[Group, Load]]] = defaultdict(list)
    for item in program.items:
        if isinstance(item, Group):
            for load in loads(item):
                found[load.buffer.name].append((item, load))
    return found


def _sole_store(group: Group) -> Store | None:
    """The only statement of a group that computes one element of one buffer for each outer index.

    Each of its indices is a range of the group plus a constant, or a constant where one index is stored.
    """
    if len(group.loops) != 1 or group.loops[0].inner or len(group.loops[0].body) != 1:
        return None
    statement = group.loops[0].body[0]
    if not isinstance(statement, Store):
        return None
    plain = {dims.as_symbol(r) for r in group.outer}
    for index in statement.index:
        symbol, _, _ = _interval(index)
        if symbol is not None and symbol not in plain:
            return None
        plain.discard(symbol)
        if symbol is None and not isinstance(index, int):
            return None
    return statement if all(s.extent == 1 for s in plain) else None


def _interval(index: Dim) -> tuple[Symbol | None, Dim, Dim]:
    """(range, first, extent) of an index that is a range plus a constant."""
    if isinstance(index, int):
        return None, index, 1
    if type(index.sole) is Symbol and index.sole.extent is not None:
        return index.sole, 0, index.sole.extent
    symbol = next(iter(dims.symbols(index)), None)
    if symbol is None or symbol.extent is None or len(dims.symbols(index)) != 1:
        return None, index, 1
    first = dims.substitute(index, {symbol: 0})
    plain = isinstance(first, int) and index is dims.of_atom(symbol) + first
    return (symbol, first, symbol.extent) if plain else (None, index, 1)


def _worthwhile(pieces: list[tuple[Store, Group]], uses: list[tuple[Group, Load]]) -> bool:
    values = [store.value for store, _ in pieces]
    if any(value.depth > DEEPEST_INLINED or _is_nested(value) for value in values):
        return False
    price = sum(map(cost, values))
    store = pieces[0][0]
    known = traits(store.buffer.device)
    if _too_often(store, price, values, {id(group): group for group, _ in uses}):
        return False
    if len(pieces) == 1 and price <= known.of_one and big_loads(values[0]) <= 1:
        return True
    return len(pieces) == 1 and _recomputed(store, price, uses, known) or _once(values, price, uses)


def _once(values: list[Expr], price: int, uses: list[tuple[Group, Load]]) -> bool:
    """Is it computed no more often where it is read?"""
    if len(values) > MOST_PIECES or (len(values) > 1 and price > CHEAP * len(values)):
        return False
    if len({id(g) for g, _ in uses}) > 1 or sum(1 for _ in nodes(values)) > LARGEST:
        return False
    return len({load for _, load in uses}) == 1 and not any(_repeats(g, load) for g, load in uses)


def _too_often(store: Store, price: int, values: list[Expr], readers: dict[int, Group]) -> bool:
    """Is it a window that several read, or one in rows; or does a window read it, for whose elements it costs much?"""
    if any(map(is_window, values)):
        return len(readers) > 1 or any(loop.inner for group in readers.values() for loop in group.loops)
    if price <= FOR_EACH and len(values[0].loads) <= 1:
        return False
    stored = (s.value for group in readers.values() for s in group.statements() if isinstance(s, Store))
    read = filter(is_window, stored)
    return any(sum(load.buffer.name == store.buffer.name for load in value.loads) > WINDOW for value in read)


def _is_nested(value: Expr) -> bool:
    return any(_nesting(index) > MOST_NESTED for load in value.loads for index in load.index)


@dims.cached
def _nesting(dim: Dim) -> int:
    """How many quotients, remainders and the like lie in one another."""
    if isinstance(dim, int):
        return 0
    inside = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, dims.Binary)]
    return max((1 + max(_nesting(atom.left), _nesting(atom.right)) for atom in inside), default=0)


def _recomputed(store: Store, price: int, uses: list[tuple[Group, Load]], known: Traits) -> bool:
    """Is it computed again by each reader? Where that saves no byte it may still: what is made of it needs no more
    either then."""
    again = len({id(group) for group, _ in uses}) - 1
    few = price <= known.recomputes and big_loads(store.value) == 2
    if not few and not (known.operations and again > 0):
        return False
    saved = _saved(store, uses)
    return saved >= 0 and (few or 0 < price * again <= known.operations * saved)


def _saved(store: Store, uses: list[tuple[Group, Load]]) -> int:
    """Bytes of an element that the readers together need not read, and nobody stores, where each of them computes the
    value; below zero where they would read more. -1 where one reader would compute it several times."""
    size = store.buffer.dtype.itemsize
    own = {load.buffer.name: load.buffer for load in big(store.value)}
    readers: dict[int, list[Load]] = defaultdict(list)
    groups = {id(group): group for group, _ in uses}
    for group, load in uses:
        readers[id(group)].append(load)
    found = size
    for key, each in readers.items():
        if len(set(each)) > 1 or _repeats(groups[key], each[0]):
            return -1
        known = {load.buffer.name for load in loads(groups[key])}
        found += size - sum(b.dtype.itemsize for name, b in own.items() if name not in known)
    return found


def _repeats(group: Group, load: Load) -> bool:
    """Is the loaded element needed again for other values of the fastest range?"""
    ranges = [*group.outer, *(r for loop in group.loops for r in loop.inner)]
    varying = {dims.as_symbol(r) for r in ranges if dims.as_symbol(r).extent != 1}
    return bool(varying - load.symbols)


class _Rewriter:
    """Replaces loads of inlined producers; one memo for each group."""

    def __init__(self, bodies: dict[str, tuple[Store, ...]]) -> None:
        self.bodies = bodies
        self.memo: dict[Expr, Expr] = {}

    def group(self, group: Group) -> Group:
        if not any(load.buffer.name in self.bodies for load in loads(group)):
            return group
        loops = tuple(Loop(loop.inner, tuple(map_exprs(s, self.expr) for s in loop.body)) for loop in group.loops)
        return Group(group.name, group.outer, loops, group.locals)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, {}, self.memo, self.leaf)

    def leaf(self, node: Expr) -> Expr | None:
        body = self.bodies.get(node.buffer.name) if isinstance(node, Load) else None
        if body is None:
            return None
        assert isinstance(node, Load)
        value, _ = _piece(body[-1], node.index)
        for store in reversed(body[:-1]):
            part, inside = _piece(store, node.index)
            value = Op("where", (inside, under_mask(part, inside), under_mask(value, _not(inside))), value.dtype)
        return value if node.mask is None else under_mask(value, node.mask)


def _piece(store: Store, index: tuple[Dim, ...]) -> tuple[Expr, Expr]:
    """What `store` put at `index`, and the condition that it is the one that wrote there."""
    mapping: dict[Symbol, Dim] = {}
    inside: Expr = Const(True, torch.bool)
    for target, at, size in zip(store.index, index, store.buffer.sizes, strict=True):
        symbol, first, extent = _interval(target)
        if symbol is not None:
            mapping[symbol] = at - first
        if first == 0 and extent == size:
            continue
        for name, bound in (("ge", first), ("lt", first + extent)):
            inside = _and(inside, Op(name, (_index(at), _index(bound)), torch.bool))
    return rewrite(store.value, mapping, {}), inside


def _index(dim: Dim) -> Expr:
    return Const(dim, torch.int64) if isinstance(dim, int) else Index(dim)


def _and(a: Expr, b: Expr) -> Expr:
    return b if isinstance(a, Const) else Op("and", (a, b), torch.bool)


def _not(a: Expr) -> Expr:
    return Op("not", (a,), torch.bool)


def under_mask(value: Expr, mask: Expr) -> Expr:
    """`value` where `mask` holds, zero elsewhere, touching memory only where it holds."""

    def masked(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        inside = mask if node.mask is None else Op("and", (node.mask, mask), torch.bool)
        return Load(node.buffer, node.index, inside)

    zero = Const(False if value.dtype is torch.bool else 0.0 if value.dtype.is_floating_point else 0, value.dtype)
    return Op("where", (mask, rewrite(value, {}, {}, masked), zero), value.dtype)
