"""Sums that wait for another reduction of the same elements, found in one pass over them all the same.

    r = sum(x);  q = sum((x - s)**2)     each part p:  r_p = sum(x);  q_p = sum((x - r_p / n_p)**2)
                                         whole:        r = sum(r_p);  q = sum(q_p + n_p * (r_p / n_p - s)**2)
    r = max(x);  q = sum(exp(x - s))     each part p:  r_p = max(x);  q_p = sum(exp(x - r_p))
                                         whole:        r = max(r_p);  q = sum(q_p * exp(r_p - s))

Both hold for any `s`, which is a mean, or the maximum itself: nothing large cancels or overflows then. A part that
stays in registers is read once. The first is in Chan, Golub and LeVeque, "Algorithms for computing the sample
variance" (1983), the second in Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const, Expr, Index, Loop, Op, Reduce, Store
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Follower:
    """`reduce`, whose value is made of `element`, as that of its leader is, and of `shift`."""

    reduce: Reduce
    element: Expr
    shift: Expr

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the elements, and of what is accumulated."""
        return self.element.dtype

    def op(self, name: str, *args: Expr) -> Expr:
        """An operator on expressions of this dtype; `eq` gives a bool."""
        dtype = torch.bool if name == "eq" else self.dtype
        return Op(name, args, dtype)


class Squares(Follower):
    """The sum of squared deviations; its leader is the sum."""

    longest = 4096  # elements of a part, on a GPU: measured

    def part(self, lead: Expr, count: Dim) -> Expr:
        """What a part sums up, where its leader has come to `lead` over `count` elements."""
        away = self.op("sub", self.element, self.op("div", lead, _number(count, self.dtype)))
        return self.op("mul", away, away)

    def whole(self, part: Expr, lead: Expr, count: Dim, shift: Expr) -> Expr:
        """What is summed up over the parts."""
        n = _number(count, self.dtype)
        away = self.op("sub", self.op("div", lead, n), shift)
        return self.op("add", part, self.op("mul", n, self.op("mul", away, away)))


class Exponentials(Follower):
    """The sum of exponentials; its leader is the maximum. A part may have nothing but minus infinities."""

    longest = 1024

    def part(self, lead: Expr, count: Dim) -> Expr:
        """`exp(element - lead)`; a lead of minus infinity counts as 0, so that nothing becomes NaN."""
        least, zero = Const(float("-inf"), self.dtype), Const(0.0, self.dtype)
        finite = self.op("where", self.op("eq", lead, least), zero, lead)
        return self.op("exp", self.op("sub", self.element, finite))

    def whole(self, part: Expr, lead: Expr, count: Dim, shift: Expr) -> Expr:
        """A part seen from the final leader: `part * exp(lead - shift)`."""
        return self.op("mul", part, self.op("exp", self.op("sub", lead, shift)))


_LEADERS: dict[str, type[Squares | Exponentials]] = {"sum": Squares, "max": Exponentials}


def followers(loops: Sequence[Loop]) -> dict[str, list[Squares | Exponentials]]:
    """Followers by the names of their leaders, in a group whose `loops` keep nothing in rows.

    Where elements are written to, on the way or anywhere in the group, two loops may not see the same ones."""
    stored = {s.buffer.name for loop in loops for s in loop.body if isinstance(s, Store)}
    leaders: dict[tuple[object, ...], str] = {}  # of loops before the one that is looked at
    found: dict[str, list[Squares | Exponentials]] = {}
    for loop in loops:
        reduces = [s for s in loop.body if isinstance(s, Reduce) and s.dtype.is_floating_point] if loop.inner else []
        reduces = [r for r in reduces if r.value.dtype is r.dtype]
        new: dict[tuple[object, ...], str] = {}
        for reduce in reduces:
            follower = follower_of(reduce, loop.inner)
            leader = None if follower is None else leaders.get((type(follower), follower.element, loop.inner))
            if leader is not None:
                found.setdefault(leader, []).append(follower)  # type: ignore[arg-type]
            elif reduce.kind in _LEADERS and not any(load.buffer.name in stored for load in reduce.value.loads):
                new[_LEADERS[reduce.kind], reduce.value, loop.inner] = reduce.name
        leaders |= new
    return found


def follower_of(reduce: Reduce, inner: tuple[Dim, ...]) -> Squares | Exponentials | None:
    """The reduction as a follower, whoever may lead it."""
    value, ranges = reduce.value, frozenset(map(dims.as_symbol, inner))
    if reduce.kind != "sum" or not isinstance(value, Op):
        return None
    kind: type[Squares | Exponentials] = Exponentials if value.name == "exp" else Squares
    if value.name not in ("mul", "exp") or value.args[0] is not value.args[-1]:
        return None
    away = value.args[0]
    if not isinstance(away, Op) or away.name != "sub" or away.args[1].symbols & ranges:
        return None
    return kind(reduce, *away.args)


def _number(count: Dim, dtype: torch.dtype) -> Expr:
    return Const(float(count), dtype) if isinstance(count, int) else Op("cast", (Index(count),), dtype)
