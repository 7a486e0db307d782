"""Give a GPU enough programs: groups with few outer indices and much to reduce become several groups.

before:  group for c < 64:  loop n < 16, h < 4096: s = sum(x[n, c, h])     loop n, h: y[n, c, h] = x[n, c, h] - s
after:   group for c, n:    loop h: t = sum(x[n, c, h])                    loop: p[c, n] = t
         group for c:       loop n: s = sum(p[c, n])                       loop: r[c] = s
         group for c, n, h: loop: y[n, c, h] = x[n, c, h] - r[c]

Each loop over inner ranges is a group of its own then: partial results in so many programs that the device is busy,
their sum, and what is stored for every index. A sum that waits for another reduction of the same elements, as a
variance does for the mean, comes from the same parts (`followers.py`), which fit into registers: memory is read once.
Other rows that are too long for one program's registers are computed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from dovetail.ir.contiguity import along_columns
from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim
from dovetail.ir.followers import Exponentials, Squares, followers
from dovetail.ir.launch import ENOUGH_PROGRAMS, FEWER, LONGEST_ROW, MANY_SUMS, WIDE_TILE
from dovetail.ir.liveness import added_together, reads, writes
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
    map_exprs,
    rewrite,
)
from dovetail.ir.ranges import extent
from dovetail.ir.reshape import contiguous_strides
from dovetail.schedule.fusion.nest import count, linear
from dovetail.schedule.gpu.cut import SHORT, Cut, RangePiece, cut, known
from dovetail.schedule.gpu.recompute import RecomputedRows

#: Elements of columns that one program adds up alone in any case. With 2,048 a sum over 6304x3072 in bfloat16 took
#: 30 us on an H100, with 8,192 it took 21 (in float32 30 and 29).
TALL = 8192


def suited(group: Group) -> tuple[Group, ...]:
    """The group as a GPU can run it well; groups of other devices as they are."""
    touched = next(iter({**reads(group), **writes(group)}.values()), None)
    return spread(group) if touched is not None and traits(touched.device).holds_rows else (group,)


def spread(group: Group) -> tuple[Group, ...]:
    """The group as groups with enough programs, whose rows fit into registers."""
    if not any(loop.inner for loop in group.loops):
        return (group,)
    made = _Split(group)
    if made.parts > 1 or len(group.loops) == 1 and all(isinstance(s, Store) and not s.scan for s in group.statements()):
        return tuple(made.run())
    longest = [count(loop.inner) for loop in group.loops]
    fits = all(isinstance(n, int) and n <= LONGEST_ROW for n in longest)
    return (group if fits else replace(group, loops=made.loops, locals=()),)


def _parts(group: Group, across: bool, follows: Iterable[Squares | Exponentials]) -> int:
    """How many programs should share the reductions of one outer index."""
    rows, longest = known(count(group.outer)), max(known(count(loop.inner)) for loop in group.loops)
    reduces = [s for s in group.statements() if isinstance(s, Reduce)]
    if not reduces or any(r.kind.startswith("arg") for r in reduces):
        return 1
    if any(isinstance(s, Check) or isinstance(s, Store) and s.scan for s in group.statements()):
        return 1
    wide, alone = (WIDE_TILE, TALL) if across else (1, SHORT)
    if not across and longest <= LONGEST_ROW and group.locals:
        return 1
    fewer = FEWER if added_together(group) > MANY_SUMS else 1
    busy = min(ENOUGH_PROGRAMS // fewer // max(-(-rows // wide), 1), longest // max(fewer * alone // wide, 1))
    kept = [follower.longest for follower in follows] if longest > LONGEST_ROW and not across else []
    return max([busy, *(-(-longest // part) for part in kept)])


def _across(group: Group) -> bool:
    rows = [loop for loop in group.loops if loop.inner]
    loads = [(load, loop.inner) for loop in rows for load in {i for s in loop.body for i in _loads(s)}]
    return along_columns(((linear(load.buffer, load.index), inner) for load, inner in loads), group.outer, SHORT)


def _loads(statement: Statement) -> tuple[Load, ...]:
    return (statement.condition if isinstance(statement, Check) else statement.value).loads


class _Split:
    def __init__(self, group: Group) -> None:
        self.group = group
        rows = RecomputedRows(group)
        without = [Loop(loop.inner, rows.body(loop)) for loop in group.loops]
        self.loops = tuple(loop for loop in without if loop.body)
        self.followers = followers(self.loops)  # by their leaders' names
        self.across = _across(group)
        self.parts = _parts(group, self.across, itertools.chain.from_iterable(self.followers.values()))
        self.device = next(iter({**reads(group), **writes(group)}.values())).device
        self.partial: dict[str, tuple[Cut, Load, Load]] = {}  # of followers: where they and their leaders are
        self.results: dict[str, Load] = {}  # of Reduces, once they are in memory
        self.made: list[Group] = []
        self.rest: list[Loop] = []  # of the group that comes next, over the outer ranges alone
        self.numbers = itertools.count()

    def run(self) -> list[Group]:
        behind = {f.reduce.name: f for found in self.followers.values() for f in found}
        for loop in self.loops:
            if not loop.inner:
                self.rest.append(Loop((), tuple(map_exprs(s, self.from_memory) for s in loop.body)))
                continue
            reduces = [s for s in loop.body if isinstance(s, Reduce)]
            leaders = [map_exprs(r, self.from_memory) for r in reduces if r.name not in behind]
            if leaders:
                self.flush()
                self.reduce(loop.inner, leaders)  # type: ignore[arg-type]
            for reduce in reduces:
                if reduce.name in behind:
                    self.join(behind[reduce.name])
            stores = tuple(map_exprs(s, self.from_memory) for s in loop.body if isinstance(s, Store))
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
        behind = [(r, f) for r in reduces for f in self.followers.get(r.name, ())]
        made = cut(inner, self.parts, kept=bool(behind) and not self.across, near=self.across)
        reductions = [*reduces, *(f.reduce for _, f in behind)]
        buffers = {r.name: self.buffer(r, self.with_outer(made.parts)) for r in reductions}
        for piece in made.pieces:
            self.part(piece, reduces, behind, buffers)
        places = {name: Load(buffer, self.with_outer(made.parts)) for name, buffer in buffers.items()}
        self.partial |= {f.reduce.name: (made, places[f.reduce.name], places[r.name]) for r, f in behind}
        self.joined(made, [replace(r, value=places[r.name]) for r in reduces])

    def with_outer(self, parts: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """What memory is contiguous along comes last."""
        return (*parts, *self.group.outer) if self.across else (*self.group.outer, *parts)

    def part(
        self, piece: RangePiece, reduces: list[Reduce], behind: list[tuple[Reduce, Squares | Exponentials]],
        buffers: dict[str, Buffer],
    ) -> None:  # fmt: skip
        """A group of programs for parts alike: leaders, their followers with their own shifts, and what is stored."""
        second = []
        for leader, follower in behind:
            value = self.from_memory(follower.part(Local(leader.name, leader.dtype), piece.count))
            second.append(replace(follower.reduce, value=value))
        memo: dict[Expr, Expr] = {}
        both = [[replace(r, value=rewrite(r.value, piece.mapping, memo)) for r in found] for found in (reduces, second)]
        index = self.with_outer(piece.place)
        stored = [Store(buffer, index, Local(name, buffer.dtype)) for name, buffer in buffers.items()]
        loops = [*(Loop(piece.own, tuple(found)) for found in both), Loop((), tuple(stored))]
        self.add(self.with_outer(piece.shared), [loop for loop in loops if loop.body])

    def join(self, follower: Squares | Exponentials) -> None:
        """What its parts and its leader's come to, where the shift is known."""
        made, part, lead = self.partial[follower.reduce.name]
        value = follower.whole(part, lead, made.count, self.from_memory(follower.shift))
        self.joined(made, [replace(follower.reduce, value=value)])

    def joined(self, made: Cut, whole: list[Reduce]) -> None:
        outer = self.group.outer
        results = {r.name: Load(self.buffer(r, outer), outer) for r in whole}
        kept = [Store(place.buffer, outer, Local(name, place.dtype)) for name, place in results.items()]
        self.rest += [Loop(made.parts, tuple(whole)), Loop((), tuple(kept))]
        self.results |= results
