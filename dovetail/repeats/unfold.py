"""The scheduled program of few turns, with all turns.

before:  h1 = k(x, w0);  h2 = k(h1, w1);  h3 = k(h2, w2);  y = g(h3)
after:   h1 = k(x, w0);  h2 = k(h1, w1);  h4 = k(h2, w2);  ...;  h9 = k(h8, w46);  h3 = k(h9, w47);  y = g(h3)

Kernels may reach from one turn into the next, so a stretch of items is copied, as long as one turn: the one before a
cut to which the one after the cut is equal. Equal means: the same operations on buffers that correspond, which are

* an input of one turn and the same input of the next turn, or the turn before in a backward program, everywhere alike
* what one stretch writes and what the other writes at the same place
* what the first stretch reads from before itself and what the second one reads at the same place from the first
* what both read from before the first, and the same

So a copy takes from its predecessor what the second stretch takes from the first. What follows the cut takes from the
last copy what it took from the first stretch. In the end each turn's inputs must have been read as often as others'.

What is before and after must not depend on how many turns there are: a sum over all of them would. So the program
without the second stretch is compared with that of a graph with one turn less, of which the stages have made their own.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch

from dovetail.ir.liveness import writes
from dovetail.ir.loops import Buffer, Group, Item, Output, Program, View
from dovetail.ir.records import dataclass
from dovetail.repeats.rows import Irregular, Place, Row, one_less
from dovetail.repeats.seam import Seam, TurnsOfProgram, results_early
from dovetail.repeats.shapes import renamed, shape_of

_NUMBER = re.compile(r"\d+")


@dataclass
class Unfolding:
    """Of a program whose inputs are `inputs`. `less` is the one with a turn less, as lowered and scheduled. `outputs`
    are those of the whole program. Of the last `saved` ones it is found out which are of one series."""

    inputs: Row
    less: tuple[Program, Program] | None
    outputs: Row | None = None
    saved: int = 0

    def __call__(
        self,
        lowered: Program,
        scheduled: Program,
        schedule: Callable[[Program], Program],
    ) -> Program:
        """The whole program, scheduled. Raises Irregular where its turns are not equal."""
        if lowered.mutated or self.less is None:
            raise Irregular("inputs are written to")
        try:
            return self.whole(scheduled, self.less[1])
        except Irregular:  # kernels may cross turns in other ways than operators
            return schedule(self.whole(lowered, self.less[0]))

    def whole(self, program: Program, fewer: Program) -> Program:
        cut = TurnsOfProgram(
            program.with_items(results_early(program.items)), self.inputs
        ).cut()
        outputs = self.outputs or cut.outputs(self.saved)
        less = _Unfolded(cut, one_less(self.inputs), one_less(outputs)).program()
        if not same(less, fewer.with_items(results_early(fewer.items))):
            raise Irregular(
                "the rest of the program depends on the number of turns"
            )
        found = _Unfolded(cut, self.inputs, outputs).program()
        self.outputs = outputs
        return found


def same(one: Program, other: Program) -> bool:
    """Do two programs differ in nothing but the names of items, and of buffers that are no inputs?"""
    names = {b.name: b.name for b in one.inputs}

    def corresponds(mine: Buffer, its: Buffer) -> bool:
        return names.setdefault(mine.name, its.name) == its.name

    for mine, its in itertools.zip_longest(one.items, other.items):
        if (
            mine is None
            or its is None
            or (a := shape_of(mine)).kind != (b := shape_of(its)).kind
        ):
            return False
        if not all(map(corresponds, a.operands, b.operands)):
            return False
    for mine, its in itertools.zip_longest(
        (o.value for o in one.outputs), (o.value for o in other.outputs)
    ):
        tensors = isinstance(mine, Buffer) and isinstance(its, Buffer)
        if not (
            corresponds(mine, its)
            if tensors
            else type(mine) is type(its) and mine == its
        ):
            return False
    inputs = [b.name for b in one.inputs] == [
        b.name for b in other.inputs
    ] and one.numbers == other.numbers
    return (
        inputs
        and len({*names.values()}) == len(names)
        and _same_constants(one.constants, other.constants)
    )


def _same_constants(
    one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]
) -> bool:
    pairs = ((tensor, other[name]) for name, tensor in one.items() if name in other)
    return one.keys() == other.keys() and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs
    )


class _Unfolded:
    """Puts the copies at the cut, or leaves the second stretch out. A turn's number in the whole program follows from
    where it is read."""

    def __init__(self, cut: Seam, inputs: Row, outputs: Row) -> None:
        self.cut, self.inputs, self.outputs, self.more = (
            cut,
            inputs,
            outputs,
            inputs.more,
        )
        self.short, self.step = cut.turns.program, cut.step or 1
        self.names = self.fresh()
        self.lines = dict(self.short.lines)
        self.read: Counter[Place] = Counter()
        self.copies: list[
            dict[str, Buffer]
        ] = []  # what each copy has in the place of the first stretch's buffers
        self.given: dict[
            Place, Buffer
        ] = {}  # the series of the whole program's inputs
        self.renamed: dict[str, Buffer] = {}  # the other inputs
        self.opaque: set[str] = set()
        self.inputs_of_all = tuple(self.take_inputs())

    def take_inputs(self) -> Iterator[Buffer]:
        buffers, row = {int(b.name[1:]): b for b in self.short.inputs}, self.inputs
        after = len(row.whole) - len(row.short)
        places = [*zip(row.whole, row.likes, strict=True)]
        places += [
            (Place(None, k), k) for k in buffers if k >= len(row.short)
        ]  # constants are last
        for k, (place, like) in enumerate(places):
            if like in buffers:
                at = k if k < len(row.whole) else like + after
                made = self.another(buffers[like], f"a{at}")
                self.opaque |= (
                    {made.name}
                    if buffers[like].name in self.short.opaque
                    else set()
                )
                if place.series is None:
                    self.renamed[buffers[like].name] = made
                else:
                    self.given[place] = made
                yield made

    def fresh(self) -> Iterator[str]:
        """Numbers that no name has."""
        names = [
            name
            for item in self.short.items
            for name in (getattr(item, "name", ""), *writes(item))
        ]
        names += [b.name for shape in self.cut.turns.shapes for b in shape.operands]
        return map(
            str,
            itertools.count(
                1 + max(int(n) for name in names for n in _NUMBER.findall(name))
            ),
        )

    def another(self, buffer: Buffer, name: str) -> Buffer:
        if (line := self.short.lines.get(buffer.name)) is not None:
            self.lines[name] = line
        return replace(buffer, name=name)

    def program(self) -> Program:
        cut, short = self.cut, self.short
        whole = [self.item(k, {}, self.number(before=True)) for k in range(cut.at)]
        for copy in range(1, self.more + 1):
            self.copies.append(self.copied(copy))
            whole += [
                self.item(k, self.copies[-1], self.number(True, copy), new=True)
                for k in cut.first
            ]
        rest = range(
            cut.at if self.more > 0 else cut.at + cut.period, len(short.items)
        )
        last = self.last()
        whole += [self.item(k, last, self.number(before=False)) for k in rest]
        self.check()
        names = {name: made.name for name, made in self.renamed.items()}
        return replace(
            short, inputs=self.inputs_of_all, items=tuple(whole), outputs=self.results(), lines=self.lines,
            constants={names[name]: value for name, value in short.constants.items()},
            numbers=tuple((self.inputs.position(k), number) for k, number in short.numbers),
            opaque=frozenset(self.opaque),
        )  # fmt: skip

    def last(self) -> dict[str, Buffer]:
        """What follows the copies reads these buffers in the place of others."""
        if self.copies:
            return {name: self.copies[-1][name] for name in self.cut.made}
        operands = {
            b.name: b
            for k in self.cut.first
            for b in self.cut.turns.shapes[k].operands
        }
        return {
            self.cut.becomes[name].name: operands[name] for name in self.cut.made
        }

    def number(self, before: bool, copy: int = 0) -> int:
        """What is added to the number of a turn that is read before or after the cut, or in a copy."""
        return (self.more if before == (self.step < 0) else 0) + copy * self.step

    def item(
        self, k: int, buffers: Mapping[str, Buffer], more: int, new: bool = False
    ) -> Item:
        """The item at `k` of the short program, with these buffers and turns that are `more` in number."""
        item, found = self.short.items[k], dict[str, Buffer]()
        for buffer in self.cut.turns.shapes[k].operands:
            other = buffers.get(buffer.name) or self.renamed.get(buffer.name)
            if other is not None:
                found[buffer.name] = other
            place = self.cut.turns.series.get(buffer.name)
            if place is not None:
                place = Place(place.series, place.number + more)
                if place not in self.given:
                    raise Irregular("a turn is read that does not exist")
                self.read[place] += 1
                found[buffer.name] = self.given[place]
        return renamed(item, self.name(item, new), found)

    def name(self, item: Item, new: bool) -> str:
        """Its own, or a new one with the same words; a view has none."""
        if isinstance(item, View) or not new:
            return getattr(item, "name", "")
        if isinstance(item, Group):
            return f"k{next(self.names)}_{item.name.partition('_')[2]}"
        return f"{item.name.rstrip('0123456789').rstrip('_')}_{next(self.names)}"

    def copied(self, copy: int) -> dict[str, Buffer]:
        found: dict[str, Buffer] = {}
        for k in self.cut.first:
            for buffer in self.cut.turns.shapes[k].operands:
                later = self.cut.becomes[buffer.name]
                if buffer.name in found:
                    continue
                if buffer.name in self.cut.made:
                    found[buffer.name] = self.another(
                        buffer, f"b{next(self.names)}"
                    )
                elif later.name in self.cut.made:
                    found[buffer.name] = (
                        later if copy == 1 else self.copies[-1][later.name]
                    )
        return found

    def check(self) -> None:
        """Each turn but those at the ends reads its inputs as often as the others."""
        counts: dict[int | None, set[int]] = {}
        numbers: dict[int | None, list[int]] = {}
        for series, number in self.inputs.whole:
            numbers.setdefault(series, []).append(number)
        for series, members in numbers.items():
            if series is not None:
                counts[series] = {
                    self.read[Place(series, k)]
                    for k in members
                    if min(members) < k < max(members)
                }
        if any(len(found) > 1 for found in counts.values()):
            raise Irregular("the turns do not read their inputs alike")

    # ------------------------------------------------------------ outputs

    def results(self) -> tuple[Output, ...]:
        found: dict[Place, Output] = {}
        for place, output in zip(
            self.outputs.short, self.short.outputs, strict=True
        ):
            for number, value in self.given_as(place, output.value):
                if Place(place.series, number) in found:
                    raise Irregular("two turns give one result")
                found[Place(place.series, number)] = replace(output, value=value)
        if missing := [p for p in self.outputs.whole if p not in found]:
            raise Irregular(f"{len(missing)} results of turns are not found")
        return tuple(found[place] for place in self.outputs.whole)

    def given_as(self, place: Place, value: object) -> Iterator[tuple[int, object]]:
        """The outputs that one of the short program's stands for, by number."""
        series, number = place
        if not isinstance(value, Buffer):
            yield from self.constant(place, value)
        elif value.name not in self.cut.turns.writers:
            raise Irregular("an input is a result")
        elif series is None:
            if value.name in self.cut.made:
                raise Irregular("what one turn computes is a result by itself")
            yield number, value
        elif self.copies or not self.cut.within(value, self.cut.second):
            before = self.cut.before(value.name)
            yield number + self.number(before), value
            if value.name in self.cut.made:
                for copy, buffers in enumerate(self.copies, 1):
                    yield number + self.number(True, copy), buffers[value.name]

    def constant(self, place: Place, value: object) -> Iterator[tuple[int, object]]:
        """What is no tensor is the same for all turns; the first one's number speaks for all."""
        outputs = zip(self.outputs.short, self.short.outputs, strict=True)
        same = [o.value for p, o in outputs if p.series == place.series]
        if place.series is None:
            yield place.number, value
        elif any(type(each) is not type(value) or each != value for each in same):
            raise Irregular("some turns give a tensor and some do not")
        elif place == min(
            p for p in self.outputs.short if p.series == place.series
        ):
            yield from (
                (p.number, value)
                for p in self.outputs.whole
                if p.series == place.series
            )
