"""Reductions of a kernel: of rows that are one tile, and of tiles one by one.

    whole:       r = tl.reduce(x, 1, _sum)
    tile by tile:    for s in range(tiles): a = _sum(a, x)      r = tl.reduce(a, 1, _sum)

A lane is a place of the tile: an accumulator has one value for each. What waits for another reduction of the same
elements (`ir/followers.py`) is found in the loop of that one, each lane being a part.
"""

from __future__ import annotations

import torch

from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.expressions import ACCUMULATED, Expressions
from dovetail.codegen.gpu.plan import Axis, TilePlan
from dovetail.ir.followers import Exponentials, Squares, follower_of
from dovetail.ir.loops import Group, Loop, Reduce
from dovetail.ir.records import dataclass
from dovetail.ir.scalar import identity


@dataclass(frozen=True)
class TileLanes:
    """What a follower has come to in each lane, and its leader, or the mean of what that added."""

    follower: Squares | Exponentials
    lead: str
    total: str


class Reductions:
    """`behind`: followers by their leaders' names, from the group before its loops were given ranges of their own."""

    def __init__(
        self, em: Expressions, plan: TilePlan, behind: dict[str, list[Squares | Exponentials]], group: Group
    ) -> None:
        self.em, self.plan = em, plan
        own = {s.name: follower_of(s, loop.inner) for loop in group.loops for s in loop.body if isinstance(s, Reduce)}
        self.followers = {name: [f for b in found if (f := own[b.reduce.name])] for name, found in behind.items()}
        self.lanes: dict[str, TileLanes] = {}  # of followers whose leaders' loop is written
        self.state: dict[str, list[str]] = {}  # accumulators

    def spread(self, reduce: Reduce, axis: Axis) -> tuple[str, str]:
        """The value over the whole tile, with the identity where nothing exists; and that identity."""
        dtype = _accumulated(reduce)
        value = self.em.value(reduce.value)
        if dtype is not reduce.value.dtype:
            value = f"{value}.to({types.name(dtype)})"
        neutral = types.literal(identity(reduce.kind, dtype), dtype)
        value = f"tl.broadcast_to({value}, {self.plan.tile(axis)})"
        if axis.masked:
            value = f"tl.where({axis.name}m, {value}, {neutral})"
        return value, neutral

    def whole(self, reduce: Reduce, axis: Axis) -> None:
        """A reduction of a tile that holds all there is."""
        value, _ = self.spread(reduce, axis)
        self.fold(reduce, [value, *self.places(reduce, axis)])

    def places(self, reduce: Reduce, axis: Axis) -> list[str]:
        if not reduce.kind.startswith("arg"):
            return []
        return [f"tl.broadcast_to({axis.name}, {self.plan.tile(axis)}).to(tl.int64)"]

    def accumulate(self, reduce: Reduce, axis: Axis) -> list[tuple[str, str]]:
        """One step of a loop over tiles."""
        em = self.em
        assert em.inner is not None
        value, neutral = self.spread(reduce, axis)
        names = self.state[reduce.name] = [em.fresh("a")]
        states = [(names[0], f"tl.broadcast_to({neutral}, {self.plan.tile(axis)})")]
        if reduce.kind.startswith("arg"):
            names.append(em.fresh("a"))
            states.append((names[1], f"tl.full({self.plan.tile(axis)}, {2**62}, tl.int64)"))
        if reduce.name in self.followers:
            em.inner.line(f"{(named := em.fresh('v'))} = {value}")
            value = named
        for follower in self.followers.get(reduce.name, ()):
            states += self.follow(follower, names[0], value, axis)
        given = [value, *self.places(reduce, axis)]
        em.inner.line(f"{', '.join(names)} = _{reduce.kind}({', '.join([*names, *given])})")
        return states

    def results(self, loop: Loop) -> None:
        """What all lanes come to, after a loop."""
        for statement in loop.body:
            if isinstance(statement, Reduce):
                self.fold(statement, self.state[statement.name])

    # ------------------------------------------------------------ reductions that would wait for others

    def follow(self, follower: Squares | Exponentials, lead: str, value: str, axis: Axis) -> list[tuple[str, str]]:
        """One step for each lane by itself: `lead` is what the leader has come to in it."""
        em, zero = self.em, types.literal(0.0, follower.dtype)
        assert em.inner is not None
        start = f"tl.broadcast_to({zero}, {self.plan.tile(axis)})"
        if isinstance(follower, Exponentials):
            total = em.fresh("e")
            em.inner.line(f"{total} = _exponentials({lead}, {total}, {value})")
            self.lanes[follower.reduce.name] = TileLanes(follower, lead, total)
            return [(total, start)]
        mean, squares, count = em.fresh("m"), em.fresh("q"), em.fresh("count")
        value = f"tl.where({axis.name}m, {value}, {mean})" if axis.masked else value
        em.inner.line(f"{count} += 1.0")
        em.inner.line(f"{mean}, {squares} = _squares({mean}, {squares}, {value}, {count})")
        self.lanes[follower.reduce.name] = TileLanes(follower, mean, squares)
        return [(mean, start), (squares, start), (count, zero)]

    def join(self, reduce: Reduce, axis: Axis) -> None:
        """What all lanes of a follower come to."""
        lanes = self.lanes[reduce.name]
        shift = self.em.value(lanes.follower.shift)
        if isinstance(lanes.follower, Exponentials):
            self.fold(reduce, [f"{lanes.total} * libdevice.exp({lanes.lead} - {shift})"])
            return
        line, size = self.em.outer.line, self.em.signature.extent(axis.total).lstrip("%")
        count, away = self.em.fresh("count"), self.em.fresh("d")
        line(f"{count} = ({size} + {axis.block - 1} - {self.plan.along(axis, self.plan.rank - 1)}) // {axis.block}")
        line(f"{away} = {lanes.lead} - {shift}")
        self.fold(reduce, [f"{lanes.total} + {count}.to({types.name(reduce.dtype)}) * {away} * {away}"])

    # ------------------------------------------------------------ tiles into one for each outer index

    def fold(self, reduce: Reduce, parts: list[str]) -> None:
        """A tile's values into one for each outer index."""
        em, last = self.em, self.plan.rank - 1
        keep = ", keep_dims=True" if self.plan.rank > 1 else ""
        if reduce.kind.startswith("arg"):
            extreme, name = em.fresh(), em.fresh("r")
            em.outer.line(f"{extreme}, {name} = tl.reduce(({', '.join(parts)}), {last}, _{reduce.kind}{keep})")
        else:
            name = em.fresh("r")
            em.outer.line(f"{name} = tl.reduce({parts[0]}, {last}, _{reduce.kind}{keep})")
            if _accumulated(reduce) is not reduce.dtype:
                em.outer.line(f"{name} = {name}.to({types.name(reduce.dtype)})")
        em.values[reduce.name] = name


def _accumulated(reduce: Reduce) -> torch.dtype:
    own = reduce.value.dtype if reduce.kind.startswith("arg") else reduce.dtype
    return ACCUMULATED.get(own, own)
