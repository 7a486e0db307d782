"""Rows of values, inputs or results, of which some are the same thing of each turn: a series.

short   head, weight of turn 0, of turn 1, of turn 2                  a graph with few turns
whole   head, weight of turn 0, of turn 1, ..., of turn 9             with all of them
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dovetail.ir.records import dataclass


class Irregular(Exception):
    """Why the turns of a graph that looked alike are compiled one by one."""


class Place(NamedTuple):
    """The value number `number` of a series; or, of none, the one at that position in the short row."""

    series: int | None
    number: int


@dataclass(frozen=True)
class Row:
    """The places of a short row and of the whole one, in which each series has `more` members."""

    short: tuple[Place, ...]
    whole: tuple[Place, ...]
    more: int

    @property
    def likes(self) -> tuple[int, ...]:
        """For each value of the whole row the position of one in the short row that looks like it."""
        at = {place: k for k, place in enumerate(self.short)}
        last: dict[int | None, int] = {}
        for series, number in self.short:
            last[series] = max(number, last.get(series, number))
        return tuple(
            at[p if p in at else Place(p.series, last[p.series])]
            for p in self.whole
        )

    def spread(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The whole row of values that are the same all over a series. Raises Irregular where they are not."""
        of: dict[int, Any] = {}
        for (series, _), value in zip(self.short, values, strict=True):
            if series is not None and of.setdefault(series, value) != value:
                raise Irregular(
                    "a fact about the inputs is another one in each turn"
                )
        return tuple(values[k] for k in self.likes)

    def position(self, short: int) -> int:
        """Where the value at this position of the short row is in the whole one. Raises Irregular for a series."""
        if self.short[short].series is not None:
            raise Irregular("a value of one turn has a part to play outside")
        return self.whole.index(self.short[short])

    def part(self, start: int, end: int) -> Row:
        """The row of the values in these places of the short row."""
        names = {place.series for place in self.short[start:end]}
        mine = {*self.short[start:end]}
        whole = [
            p
            for p in self.whole
            if (p.series in names if p.series is not None else p in mine)
        ]
        return Row(self.short[start:end], tuple(whole), self.more)

    def without(self, gone: Iterable[int]) -> Row:
        """The row without values of no series, which stand at these places of the short one."""
        left = {self.short[k] for k in gone}
        short, whole = (
            tuple(p for p in row if p not in left)
            for row in (self.short, self.whole)
        )
        return Row(short, whole, self.more)

    def positions(self, some: Iterable[int]) -> tuple[int, ...]:
        """Of some values of the short row, and all of their series, the positions in the whole row."""
        at = {place: k for k, place in enumerate(self.whole)}
        return tuple(
            at[place]
            for place in widened([self.short[k] for k in some], self.more).whole
        )


def widened(short: Sequence[Place], more: int) -> Row:
    """A whole row for the short one, each series together. Raises Irregular where one has gaps."""
    numbers: dict[int, list[int]] = {}
    for series, number in short:
        if series is not None:
            numbers.setdefault(series, []).append(number)
    whole: list[Place] = []
    for place in short:
        if place.series is None:
            whole.append(place)
        elif found := numbers.pop(place.series, None):
            if (
                sorted(found) != list(range(min(found), min(found) + len(found)))
                or len(found) < 2
            ):
                raise Irregular("some turns do not keep what others keep")
            whole += [
                Place(place.series, k)
                for k in range(min(found), max(found) + more + 1)
            ]
    return Row(tuple(short), tuple(whole), more)


def one_less(row: Row) -> Row:
    """From the short row to one with a member less of each series."""
    last: dict[int | None, int] = {}
    for series, number in row.short:
        last[series] = max(number, last.get(series, number))
    fewer = tuple(
        p for p in row.short if p.series is None or p.number < last[p.series]
    )
    return Row(row.short, fewer, -1)


def joined(rows: Sequence[Row]) -> Row:
    """One row after the other, each with series of its own."""
    short: list[Place] = []
    whole: list[Place] = []
    series: dict[tuple[int, int], int] = {}
    for k, row in enumerate(rows):
        new: dict[Place, Place] = {}
        for at, place in enumerate(row.short, len(short)):
            name = place.series
            own = (
                None if name is None else series.setdefault((k, name), len(series))
            )
            new[place] = Place(own, at if own is None else place.number)
        for place in row.whole:
            name = place.series
            whole.append(
                new[place] if name is None else Place(series[k, name], place.number)
            )
        short += [new[place] for place in row.short]
    return Row(tuple(short), tuple(whole), rows[0].more)


def fixed(count: int) -> list[Place]:
    """Places that belong to no series."""
    return [Place(None, k) for k in range(count)]
