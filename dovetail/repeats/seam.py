"""Where a scheduled program of few turns may be cut, to put more turns there: `unfold.py` says what must hold."""

from __future__ import annotations

from collections.abc import Sequence, Set

from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Buffer, Item, Program, View
from dovetail.repeats.periods import periods
from dovetail.repeats.rows import Irregular, Place, Row, fixed, widened
from dovetail.repeats.shapes import shape_of


def results_early(items: Sequence[Item]) -> tuple[Item, ...]:
    """Views that are results alone come right after what they are views of, in its turn; lowering has them last."""
    read = {name for item in items for name in reads(item)}
    writer = {name: k for k, item in enumerate(items) for name in writes(item)}
    order = [float(k) for k in range(len(items))]
    for k, item in enumerate(items):
        if (
            isinstance(item, View)
            and item.result.name not in read
            and item.base.name in writer
        ):
            order[k] = order[writer[item.base.name]] + 0.5
    return tuple(items[k] for k in sorted(range(len(items)), key=order.__getitem__))


class TurnsOfProgram:
    """Where a program may be cut."""

    def __init__(self, program: Program, inputs: Row) -> None:
        self.program, self.inputs = program, inputs
        self.shapes = [shape_of(item) for item in program.items]
        self.series = {
            f"a{k}": place
            for k, place in enumerate(inputs.short)
            if place.series is not None
        }
        self.writers: dict[str, list[int]] = {}
        for position, item in enumerate(program.items):
            for name in writes(item):
                self.writers.setdefault(name, []).append(position)

    def cut(self) -> Seam:
        kinds: dict[object, int] = {}
        numbers = [
            kinds.setdefault(shape.kind, len(kinds)) for shape in self.shapes
        ]
        for period, start, end in periods(numbers):
            cuts = range(start + period, end + 1)
            for at in sorted(cuts, key=lambda k: abs(2 * k - start - end - period)):
                made = Seam(self, at, period)
                if made.valid():
                    return made
        raise Irregular("no turn of the program is equal to the next one")


class Seam:
    """The items `[at - period, at)` do what `[at, at + period)` do. `becomes` maps the name of each buffer in the first
    stretch to the buffer in its place in the second one; `step` is how the numbers of turns change."""

    def __init__(self, turns: TurnsOfProgram, at: int, period: int) -> None:
        self.turns, self.at, self.period = turns, at, period
        self.first, self.second = range(at - period, at), range(at, at + period)
        self.becomes: dict[str, Buffer] = {}
        self.step = 0
        self.made = {
            b.name
            for k in self.first
            for b in turns.shapes[k].operands
            if self.within(b, self.first)
        }

    def within(self, buffer: Buffer, stretch: range) -> bool:
        """Is it written in the stretch alone?"""
        if buffer.kind == "local":
            return True
        found = self.turns.writers.get(buffer.name, ())
        return bool(found) and all(k in stretch for k in found)

    def touches(self, buffer: Buffer, stretch: range) -> bool:
        return any(k in stretch for k in self.turns.writers.get(buffer.name, ()))

    def valid(self) -> bool:
        shapes = self.turns.shapes
        for k in self.first:
            for mine, later in zip(
                shapes[k].operands, shapes[k + self.period].operands, strict=True
            ):
                if self.becomes.setdefault(
                    mine.name, later
                ) != later or not self.corresponds(mine, later):
                    return False
        return (
            len({b.name for b in self.becomes.values()}) == len(self.becomes)
            and self.followed()
        )

    def followed(self) -> bool:
        """Does nothing after the second stretch read what was the first one's?"""
        passed = {
            n
            for n, later in self.becomes.items()
            if later.name != n and n not in self.turns.series
        }
        shapes = self.turns.shapes[self.at + self.period :]
        return passed.isdisjoint(b.name for shape in shapes for b in shape.operands)

    def corresponds(self, mine: Buffer, later: Buffer) -> bool:
        old, new = (self.turns.series.get(b.name) for b in (mine, later))
        if old is not None and new is not None:
            self.step = self.step or new.number - old.number
            return (
                old.series == new.series
                and abs(self.step) == 1
                and new.number - old.number == self.step
            )
        if old is not None or new is not None:
            return False
        if mine.name in self.made:
            return self.within(later, self.second)
        if self.touches(mine, self.first):
            return False
        return later.name in self.made or later == mine

    def before(self, name: str) -> bool:
        """Is the buffer written before the cut?"""
        return max(self.turns.writers[name]) < self.at

    def outputs(self, saved: int) -> Row:
        """The program's outputs, where those of the last `saved` that are at one place of each stretch are a series."""
        values = [o.value for o in self.turns.program.outputs]
        names = [
            value.name if isinstance(value, Buffer) else None for value in values
        ]
        places, first = fixed(len(names)), len(names) - saved
        last = {
            name
            for name in names[first:]
            if name is not None and names.count(name) == 1
        }
        for series, name in enumerate(n for n in names[first:] if n in self.made):
            if name not in last:
                raise Irregular("a turn gives one result twice")
            for number, member in enumerate(
                self.members(name, last)[:: self.step or 1]
            ):
                places[names.index(member)] = Place(series, number)
        return widened(places, self.turns.inputs.more)

    def members(self, name: str, given: Set[str]) -> list[str]:
        """What is written where the first stretch writes that buffer, in all stretches like it around the cut whose
        buffer there is `given`."""
        shapes = self.turns.shapes
        at = next(k for k in self.turns.writers[name])
        place = [b.name for b in shapes[at].operands].index(name)
        found = {at: name}
        for step in (-self.period, self.period):
            k = at + step
            while 0 <= k < len(shapes) and shapes[k].kind == shapes[at].kind:
                other = shapes[k].operands[place].name
                if other not in given:
                    break
                found[k] = other
                k += step
        if at + self.period not in found:
            raise Irregular("a turn gives what the next one does not give")
        return [found[k] for k in sorted(found)]
