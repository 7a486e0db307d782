"""Give a GPU enough programs: groups with few outer indices and much to reduce become several groups.

before:  group for c < 64:  loop n < 16, h < 4096: s = sum(x[n, c, h])     loop n, h: y[n, c, h] = x[n, c, h] - s
after:   group for c, n:    loop h: t = sum(x[n, c, h])                    loop: p[c, n] = t
         group for c:       loop n: s = sum(p[c, n])                       loop: r[c] = s
         group for c, n, h: loop: y[n, c, h] = x[n, c, h] - r[c]

Each loop over inner ranges is a group of its own then: partial results in so many programs that the device is busy,
their sum, and what is stored for every index. Rows that are too long for one program's registers are computed again.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.launch import ENOUGH_PROGRAMS, LONGEST_ROW, WIDE_TILE
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import (
    Buffer,
    Check,
    Expr,
    Group,
    Load,
    Local,
    Loop,
    Reduce,
    Statement,
    Store,
    extent,
    map_exprs,
    rewrite,
)
from dovetail.ops.value import contiguous_strides
from dovetail.schedule.nest import linear
from dovetail.schedule.recompute import Rows, without_rows

#: Elements that one program reduces alone in any case.
SHORT = 2048


def suited(group: Group) -> tuple[Group, ...]:
    """The group as a GPU can run it well; groups of other devices as they are."""
    touched = next(iter({**reads(group), **writes(group)}.values()), None)
    return spread(group) if touched is not None and touched.device.type == "cuda" else (group,)


def spread(group: Group) -> tuple[Group, ...]:
    """The group as groups with enough programs, whose rows fit into registers."""
    if not any(loop.inner for loop in group.loops):
        return (group,)
    parts = _parts(group)
    if parts > 1:
        return tuple(_Split(group, parts).run())
    longest = [_count(loop.inner) for loop in group.loops]
    fits = all(isinstance(n, int) and n <= LONGEST_ROW for n in longest)
    return (group,) if fits else (without_rows(group),)


def _parts(group: Group) -> int:
    """How many programs should share the reductions of one outer index."""
    rows, longest = _count(group.outer), max(_known(_count(loop.inner)) for loop in group.loops)
    statements = list(group.statements())
    if any(isinstance(s, Check) or isinstance(s, Reduce) and s.kind.startswith("arg") for s in statements):
        return 1
    if any(isinstance(s, Store) and s.scan for s in statements):
        return 1
    if not any(isinstance(s, Reduce) for s in statements):
        return 1
    programs, alone = _known(rows), SHORT
    if _across(group):
        programs, alone = -(-programs // WIDE_TILE), max(SHORT // WIDE_TILE, 1)
    elif longest <= LONGEST_ROW and group.locals:
        return 1
    return min(ENOUGH_PROGRAMS // max(programs, 1), longest // alone)


def _across(group: Group) -> bool:
    """Do most inner accesses step by one along an outer range instead of an inner one?"""
    outer = inner = 0
    for loop in group.loops:
        for load in {i for s in loop.body if loop.inner for i in _loads(s)}:
            place = linear(load.buffer, load.index)
            along_inner = any(dims.coefficient(place, dims.as_symbol(r)) == 1 for r in loop.inner)
            inner += along_inner
            outer += not along_inner and any(dims.coefficient(place, dims.as_symbol(r)) == 1 for r in group.outer)
    return outer > inner


def _loads(statement: Statement) -> tuple[Load, ...]:
    return (statement.condition if isinstance(statement, Check) else statement.value).loads


class _Split:
    def __init__(self, group: Group, parts: int) -> None:
        self.group, self.parts = group, parts
        self.across = _across(group)
        self.rows = Rows(group)
        self.device = next(iter({**reads(group), **writes(group)}.values())).device
        self.results: dict[str, Load] = {}  # of Reduces, once they are in memory
        self.made: list[Group] = []
        self.rest: list[Loop] = []  # of the group that comes next, over the outer ranges alone
        self.numbers = itertools.count()

    def run(self) -> list[Group]:
        for loop in self.group.loops:
            body = tuple(map_exprs(s, self.from_memory) for s in self.rows.body(loop))
            if not loop.inner:
                self.rest.append(Loop((), body))
                continue
            reduces = [s for s in body if isinstance(s, Reduce)]
            stores = tuple(s for s in body if not isinstance(s, Reduce))
            if reduces:
                self.flush()
                self.reduce(loop.inner, reduces)
            if stores:
                self.flush()
                self.add((*self.group.outer, *loop.inner), [Loop((), stores)])
        self.flush()
        return self.made

    def from_memory(self, expr: Expr) -> Expr:
        def leaf(node: Expr) -> Expr | None:
            return self.results.get(node.name) if isinstance(node, Local) else None

        return rewrite(expr, {}, {}, leaf) if self.results else expr

    def add(self, outer: tuple[Dim, ...], loops: list[Loop]) -> None:
        self.made.append(Group(f"{self.group.name}_{next(self.numbers)}", outer, tuple(loops)))

    def flush(self) -> None:
        if self.rest:
            self.add(self.group.outer, self.rest)
            self.rest = []

    def buffer(self, reduce: Reduce, ranges: tuple[Dim, ...]) -> Buffer:
        sizes = tuple(map(extent, ranges))
        name = f"{self.group.name}_{reduce.name}_{next(self.numbers)}"
        return Buffer(name, reduce.dtype, self.device, sizes, contiguous_strides(sizes))

    def reduce(self, inner: tuple[Dim, ...], reduces: list[Reduce]) -> None:
        """Partial results, each by one program; the rest joins them."""
        outer = self.group.outer
        shared, own, mapping = _divided(inner, self.parts)
        memo: dict[Expr, Expr] = {}
        partial = [replace(r, value=rewrite(r.value, mapping, memo)) for r in reduces]
        both = (*shared, *outer) if self.across else (*outer, *shared)  # what memory is contiguous along comes last
        places = [self.buffer(r, both) for r in reduces]
        stored = [Store(b, both, Local(r.name, r.dtype)) for b, r in zip(places, reduces, strict=True)]
        self.add(both, [Loop(own, tuple(partial)), Loop((), tuple(stored))])
        joined = [replace(r, value=Load(b, both)) for b, r in zip(places, reduces, strict=True)]
        results = [self.buffer(r, outer) for r in reduces]
        kept = [Store(b, outer, Local(r.name, r.dtype)) for b, r in zip(results, reduces, strict=True)]
        self.rest = [Loop(shared, tuple(joined)), Loop((), tuple(kept))]
        self.results |= {r.name: Load(b, outer) for b, r in zip(results, reduces, strict=True)}


def _divided(inner: tuple[Dim, ...], parts: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...], dict[dims.Symbol, Dim]]:
    """Ranges shared out among programs, ranges that each reduces, and what becomes of a range that is cut in two."""
    shared: list[Dim] = []
    for k, r in enumerate(inner):
        left = -(-parts // max(_known(_count(tuple(shared))), 1))
        if left <= 1:
            return tuple(shared), inner[k:], {}
        size = extent(r)
        factor = _factor(size, left)
        if factor > 1 and factor != size and (k + 1 < len(inner) or factor * 2 <= _known(size)):
            symbol = dims.as_symbol(r)
            high = dims.symbol(f"{symbol.name}.p", 0, factor)
            low = dims.symbol(f"{symbol.name}.q", 0, size // factor)
            return (*shared, high), (low, *inner[k + 1 :]), {symbol: high * (size // factor) + low}
        if k + 1 == len(inner):
            break
        shared.append(r)
    return tuple(shared), inner[len(shared) :], {}


def _factor(size: Dim, wanted: int) -> int:
    """The divisor of `size` nearest above `wanted`, or the largest; 1 where the size is not known."""
    if not isinstance(size, int):
        return 1
    divisors = [d for d in range(1, min(size, 8 * wanted) + 1) if size % d == 0]
    return next((d for d in divisors if d >= wanted), divisors[-1] if divisors else 1)


def _count(ranges: tuple[Dim, ...]) -> Dim:
    return dims.product(map(extent, ranges))


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else SHORT
