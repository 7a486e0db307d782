"""Turn a nest's statements into as few loops as its dependences allow.

before:  t[h] = x + y | s += t[h] | out[h] = t[h] / s          t read by nobody else
after:   loop h: t[h] = v = x + y; s += v       loop h: out[h] = t[h] / s       t local to the row

A statement goes into the first loop over its inner ranges after everything it needs. A value stored
earlier in the same loop is used directly. What only this group reads is kept in a local row,
or computed again where that is cheaper, and not stored at all if nothing reads it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.liveness import nodes
from dovetail.ir.loops import (
    Buffer,
    Expr,
    Group,
    Index,
    Load,
    Local,
    Loop,
    Op,
    Reduce,
    Statement,
    Store,
    map_exprs,
    rewrite,
)
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.schedule.fusion.cost import CHEAP, big_loads, cost, weight
from dovetail.schedule.fusion.inline import under_mask
from dovetail.schedule.fusion.nest import Nest, Placed, count, extents
from dovetail.schedule.fusion.one_hot import without_one_hot

#: Bytes of one row buffer: several fit in a 32 KiB first-level cache together with their inputs.
LARGEST_ROW = 64 * 1024
#: A value at least this expensive that two loops need is kept in a row instead of computed twice.
WORTH_KEEPING = 10


@dataclass(slots=True)
class _Level:
    """One loop being filled. `values` maps what it stores to the stored expressions."""

    inner: tuple[Dim, ...]
    depth: int
    body: list[Statement] = field(default_factory=list)
    values: dict[tuple[str, tuple[Dim, ...]], Expr] = field(default_factory=dict)


def arrange(nest: Nest, name: str, needed: set[str]) -> Group:
    """`needed`: the buffers that something outside the nest reads."""
    private = nest.written() - needed
    levels = _levels(_recompute_cheap(nest, private))
    loops = without_one_hot([Loop(level.inner, tuple(level.body)) for level in levels])
    loops = _drop_unread(loops, private)
    loops, shared = _keep_common(loops, name)
    loops, rows = _rows(loops, private) if private else (loops, [])
    return Group(name, nest.outer, tuple(loops), tuple(shared + rows))


def _levels(nest: Nest) -> list[_Level]:
    """Loops in order of execution: by depth, then by first appearance."""
    ready: dict[str, int] = {}  # reduction -> depth from which its value can be read
    stored: dict[str, list[tuple[tuple[Dim, ...], int, _Level]]] = defaultdict(list)
    levels: dict[tuple[int, tuple[Dim, ...]], _Level] = {}
    for p in nest.placed:
        depth = 0
        for node in p.nodes():
            if isinstance(node, Local):
                depth = max(depth, ready[node.name])
            elif isinstance(node, Load):
                for index, at, level in stored.get(node.buffer.name, ()):
                    known = (node.buffer.name, index) in level.values
                    depth = max(depth, at if known and index == node.index and level.inner == p.inner else at + 1)
        level = levels.setdefault((depth, p.inner), _Level(p.inner, depth))
        statement = _forward(p.statement, level.values)
        level.body.append(statement)
        if isinstance(statement, Reduce):
            ready[statement.name] = depth + 1
        elif isinstance(statement, Store):
            if not statement.scan:
                level.values[statement.buffer.name, statement.index] = statement.value
            stored[statement.buffer.name].append((statement.index, depth, level))
    return sorted(levels.values(), key=lambda level: level.depth)


def _forward(statement: Statement, values: dict[tuple[str, tuple[Dim, ...]], Expr]) -> Statement:
    """Use values stored earlier in the same iteration instead of loading them."""

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        value = values.get((node.buffer.name, node.index))
        return value if value is None or node.mask is None else under_mask(value, node.mask)

    return _with_leaf(statement, leaf) if values else statement


def _with_leaf(statement: Statement, leaf: object) -> Statement:
    memo: dict[Expr, Expr] = {}

    def moved(expr: Expr) -> Expr:
        return rewrite(expr, {}, memo, leaf)  # type: ignore[arg-type]

    if isinstance(statement, Store):
        statement = replace(statement, index=tuple(dims.substitute(i, {}, moved) for i in statement.index))
    return map_exprs(statement, moved)


def _recompute_cheap(nest: Nest, private: set[str]) -> Nest:
    """Replace loads of private values that cost less to compute again than a row costs."""
    if not private:
        return nest
    values: dict[tuple[str, tuple[Dim, ...]], Expr] = {}
    placed: list[Placed] = []
    for p in nest.placed:
        statement = _forward(p.statement, values)
        placed.append(Placed(p.inner, statement))
        if isinstance(statement, Store) and statement.buffer.name in private and not statement.scan:
            scalar = not p.inner or not any(s in statement.value.symbols for s in p.symbols)
            if scalar or (cost(statement.value, p.symbols) <= CHEAP and big_loads(statement.value) <= 1):
                values[statement.buffer.name, statement.index] = statement.value
    return Nest(nest.names, nest.outer, placed)


def _drop_unread(loops: list[Loop], private: set[str]) -> list[Loop]:
    """Remove stores to private buffers that no loop loads, and loops left empty."""
    while private:
        read = {n.buffer.name for loop in loops for n in _loop_nodes(loop) if isinstance(n, Load)}
        kept = []
        for loop in loops:
            body = tuple(s for s in loop.body
                         if not (isinstance(s, Store) and s.buffer.name in private and s.buffer.name not in read))
            if body:
                kept.append(Loop(loop.inner, body))
        if sum(len(k.body) for k in kept) == sum(len(k.body) for k in loops):
            return kept
        loops = kept
    return loops


def _loop_nodes(loop: Loop) -> list[Expr]:
    return [n for s in loop.body for n in Placed(loop.inner, s).nodes()]


# ---------------------------------------------------------------- rows


def _row(name: str, dtype: object, inner: tuple[Dim, ...], like: Buffer) -> Buffer:
    sizes = extents(inner)
    return Buffer(name, dtype, like.device, sizes, contiguous_strides(sizes), 0, "local")  # type: ignore[arg-type]


def _fits(inner: tuple[Dim, ...], itemsize: int) -> bool:
    elements = count(inner)
    return isinstance(elements, int) and elements * itemsize <= LARGEST_ROW


def _rows(loops: list[Loop], private: set[str]) -> tuple[list[Loop], list[Buffer]]:
    """Private buffers that are still loaded, at the element where they were stored, become rows."""
    sites: dict[str, tuple[Store, Loop]] = {}
    spoiled: set[str] = set()
    for loop in loops:
        for s in loop.body:
            if isinstance(s, Store) and s.buffer.name in private:
                if s.buffer.name in sites or not loop.inner or not _fits(loop.inner, s.buffer.dtype.itemsize):
                    spoiled.add(s.buffer.name)
                sites[s.buffer.name] = (s, loop)
    for loop in loops:
        for node in _loop_nodes(loop):
            if isinstance(node, Load) and node.buffer.name in sites:
                store, home = sites[node.buffer.name]
                if node.index != store.index or home.inner != loop.inner:
                    spoiled.add(node.buffer.name)
    rows = {n: _row(n, s.buffer.dtype, loop.inner, s.buffer) for n, (s, loop) in sites.items() if n not in spoiled}
    if not rows:
        return loops, []

    def leaf(inner: tuple[Dim, ...]) -> object:
        return lambda node: (Load(rows[node.buffer.name], inner, node.mask)
                             if isinstance(node, Load) and node.buffer.name in rows else None)

    changed = []
    for loop in loops:
        body = [_with_leaf(s, leaf(loop.inner)) for s in loop.body]
        body = [replace(s, buffer=rows[s.buffer.name], index=loop.inner)
                if isinstance(s, Store) and s.buffer.name in rows else s for s in body]
        changed.append(Loop(loop.inner, tuple(body)))
    return changed, list(rows.values())


def _keep_common(loops: list[Loop], name: str) -> tuple[list[Loop], list[Buffer]]:
    """Expensive values that several loops over the same ranges compute are computed once, into a row."""
    rows: list[Buffer] = []
    by_inner: dict[tuple[Dim, ...], list[int]] = defaultdict(list)
    for k, loop in enumerate(loops):
        if loop.inner:
            by_inner[loop.inner].append(k)
    for inner, members in by_inner.items():
        if len(members) < 2:
            continue
        for expr in _common_expensive([loops[k] for k in members], inner):
            like = next((n.buffer for n in nodes([expr]) if isinstance(n, Load)), None)
            if like is None or not _fits(inner, expr.dtype.itemsize):
                continue
            row = _row(f"{name}_row{len(rows)}", expr.dtype, inner, like)
            rows.append(row)
            _keep(loops, members, inner, expr, row)
    return loops, rows


def _common_expensive(loops: list[Loop], inner: tuple[Dim, ...]) -> list[Expr]:
    """Maximal expressions found in two loops or more whose last steps are worth keeping."""
    symbols = {dims.as_symbol(r) for r in inner}
    seen: dict[Expr, int] = defaultdict(int)
    for loop in loops:
        for node in set(_loop_nodes(loop)):
            seen[node] += 1
    common = [n for n, times in seen.items()
              if times > 1 and isinstance(n, Op) and n.symbols & symbols and _price(n) >= WORTH_KEEPING]
    inside = {child for n in common for child in nodes(list(n.children))}
    return [n for n in common if n not in inside]


def _price(expr: Expr) -> int:
    return sum(weight(n) for n in nodes([expr]) if not isinstance(n, (Load, Index)))


def _keep(loops: list[Loop], members: list[int], inner: tuple[Dim, ...], expr: Expr, row: Buffer) -> None:
    """The first loop stores the value and uses it; the later ones load it."""
    load = Load(row, inner)
    users = [k for k in members if expr in _loop_nodes(loops[k])]
    first, *later = users
    loops[first] = Loop(inner, (Store(row, inner, expr), *loops[first].body))
    for k in later:
        loops[k] = Loop(inner, tuple(_replace(s, expr, load) for s in loops[k].body))


def _replace(statement: Statement, old: Expr, new: Expr) -> Statement:
    memo = {old: new}
    return map_exprs(statement, lambda expr: rewrite(expr, {}, memo))
