"""How much memory is alive at each item of a program, so that fusion never needs more than eager does.

before:  b0 = mm(a0, a1);  b1[i] = b0[i] + a2[i];  b2 = mm(a0, a3);  b3[i] = b1[i] + b2[i];  b4 = mm(a0, a5);  ...
after:   b0 = mm(a0, a1);  b2 = mm(a0, a3);  b4 = mm(a0, a5);  ...;  b9[i] = b0[i] + a2[i] + b2[i] + b4[i] + ...

Each sum of the latter is read once instead of being stored and read, but all products are alive at once. So what is
computed later than the program says, or stored earlier, is so only as long as no moment gets more than the program's
largest, a little apart. Inputs are the caller's, and cost nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from dovetail.ir import dimvalues
from dovetail.ir.liveness import last_uses, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Buffer, Program

#: Bytes that are not worth a decision.
SLACK = 1 << 20


def allocated(program: Program) -> dict[str, int]:
    """The bytes, typically, of each buffer that the program allocates."""
    roots, inputs = view_roots(program), {b.name for b in program.inputs}
    every = (b for item in program.items for b in writes(item).values())
    own = (b for b in every if b.name not in inputs and b.name not in roots)
    return {b.name: dimvalues.typical(b.span) * b.dtype.itemsize for b in own}


class Lifetimes:
    """Of the buffers of a program, while values are computed where they are read."""

    def __init__(self, program: Program) -> None:
        self.roots, self.sizes = view_roots(program), allocated(program)
        self.first: dict[str, int] = {}
        self.last = last_uses(program)
        for position, item in enumerate(program.items):
            for name in writes(item):
                self.first.setdefault(name, position)
        self.live = np.zeros(len(program.items) + 1, dtype=np.int64)
        for name, size in self.sizes.items():
            self.live[self.first[name] : self.last[name] + 1] += size
        most = int(self.live.max())
        self.most = most + most // 16 + SLACK

    def let(self, made: str, read: Iterable[Buffer]) -> bool:
        """May all readers of `made` compute it of what it is computed from? They do from then on."""
        end = self.last[made]
        longer = {self.roots.get(b.name, b.name) for b in read}
        longer = {name for name in longer if name in self.sizes and self.last[name] < end}
        start = min([self.first[made], *(self.last[name] + 1 for name in longer)])
        live = self.live[start : end + 1].copy()
        live[self.first[made] - start :] -= self.sizes[made]
        for name in longer:
            live[self.last[name] + 1 - start :] += self.sizes[name]
        if live.max() > self.most:
            return False
        self.live[start : end + 1] = live
        self.last.update(dict.fromkeys(longer, end))
        return True


def most_alive(program: Program) -> int:
    """Bytes that may be alive at once in what the program becomes."""
    return Lifetimes(program).most


class Places(Lifetimes):
    """The same while items move to where others are; `most`: bytes that may be alive at once."""

    def __init__(self, program: Program, most: int) -> None:
        super().__init__(program)
        self.most = most
        self.places = list(range(len(program.items)))
        self.touched: list[set[str]] = []  # by each item: what is allocated
        self.uses: dict[str, list[int]] = defaultdict(list)
        for position, item in enumerate(program.items):
            names = {self.roots.get(name, name) for name in (*reads(item), *writes(item))} & self.sizes.keys()
            self.touched.append(names)
            for name in names:
                self.uses[name].append(position)

    def let_move(self, places: Mapping[int, int]) -> bool:
        """May these items be at these places? They are from then on."""
        end = len(self.places)
        found: dict[str, tuple[int, int]] = {}
        change = np.zeros(end + 2, dtype=np.int64)  # of what is alive, from one place to the next
        for name in {name for at in places for name in self.touched[at]}:
            uses = [places.get(at, self.places[at]) for at in self.uses[name]]
            first, last = found[name] = min(uses), max(uses) if self.last[name] < end else end
            for at, size in ((first, 1), (self.first[name], -1), (last + 1, -1), (self.last[name] + 1, 1)):
                change[at] += size * self.sizes[name]
        live = self.live + change.cumsum()[:-1]
        if live.max() > self.most:
            return False
        self.live = live
        for name, (first, last) in found.items():
            self.first[name], self.last[name] = first, last
        for at, place in places.items():
            self.places[at] = place
        return True


class SlotLifetimes:
    """The same while items change places: each is in a slot, and one that moves down leaves it for the next.

    A buffer is alive until its last reader, or up to the end as long as some of its readers are still to come.
    """

    def __init__(self, program: Program, most: int) -> None:
        self.roots, self.sizes, self.most = view_roots(program), allocated(program), most
        self.left = Counter(name for item in program.items for name in self.names(reads(item)))
        self.left.update(self.names(output_buffers(program)))
        self.first: dict[str, int] = {}
        self.writers: dict[str, set[int]] = defaultdict(set)
        self.last: dict[str, int] = {}
        self.live = np.zeros(len(program.items) + 1, dtype=np.int64)
        self.end = self.now = 0  # slots, and the bytes that are alive after the last

    def names(self, buffers: Iterable[str]) -> set[str]:
        """Those that are allocated."""
        return {root for root in (self.roots.get(name, name) for name in buffers) if root in self.sizes}

    def bytes(self, names: Iterable[str]) -> int:
        return sum(map(self.sizes.__getitem__, names))

    def append(self, read: Iterable[str], written: Iterable[str]) -> None:
        """An item in the next slot."""
        self.write(self.end, written)
        self.live[self.end] = self.now
        self.touch(self.end, read, written)
        self.end += 1

    def raising(self, slot: int, read: Iterable[str], written: Iterable[str]) -> Callable[[], None] | None:
        """What puts the next item into an earlier slot; None if too much would be alive."""
        live = self.live[slot : self.end].copy()
        for name in self.names(written):
            live[: max(self.first.get(name, self.end) - slot, 0)] += self.sizes[name]
        before = live.copy()
        for name in self.names(read):
            if self.left[name] == 1:
                live[max(self.last[name], slot) + 1 - slot :] -= self.sizes[name]
        if live.max() > self.most:
            return None

        def put() -> None:
            self.live[slot : self.end] = before
            self.write(slot, written)
            self.touch(slot, read, written)

        return put

    def lowering(
        self, slot: int, moved: tuple[Iterable[str], Iterable[str]], read: Iterable[str], written: Iterable[str]
    ) -> Callable[[], None] | None:
        """What puts the item of an earlier slot, which reads and writes `moved`, into the next one, with another."""
        used, made = map(self.names, moved)
        longer = self.bytes(n for n in used if self.last[n] == slot and not self.left[n])
        live = self.live[slot : self.end].copy()
        live[1:] += longer
        later = {n: min(self.writers[n] - {slot}, default=self.end) for n in made if self.first[n] == slot}
        for name, first in later.items():
            live[: first - slot] -= self.sizes[name]
        top = self.now + longer + self.bytes(self.names(written) - self.first.keys())
        if max(live[1:].max(initial=0), top) > self.most:
            return None

        def put() -> None:
            self.live[slot : self.end] = live
            self.first.update(later)
            for name in made:
                self.writers[name] = self.writers[name] - {slot} | {self.end}
            self.last.update(dict.fromkeys(used | made, self.end))
            self.append(read, written)
            self.live[self.end - 1] += longer

        return put

    def sinking(
        self, slot: int, place: int, moved: tuple[Iterable[str], Iterable[str]]
    ) -> Callable[[], None] | None:
        """What puts the item of a slot, which reads and writes `moved`, into a later one that is taken."""
        used, made = map(self.names, moved)
        live = self.live[slot : self.end].copy()
        for name in used:
            if not self.left[name] and self.last[name] < place:
                live[self.last[name] + 1 - slot : place + 1 - slot] += self.sizes[name]
        first = {n: min(self.writers[n] - {slot} | {place}) for n in made if self.first[n] == slot}
        for name, at in first.items():
            live[: at - slot] -= self.sizes[name]
        if live.max() > self.most:
            return None

        def put() -> None:
            self.live[slot : self.end] = live
            self.first.update(first)
            for name in made:
                self.writers[name] = self.writers[name] - {slot} | {place}
            self.last.update({name: max(self.last[name], place) for name in used | made})

        return put

    def write(self, slot: int, written: Iterable[str]) -> None:
        for name in self.names(written):
            self.now += 0 if name in self.first else self.sizes[name]
            self.first[name] = min(self.first.get(name, slot), slot)
            self.writers[name].add(slot)

    def touch(self, slot: int, read: Iterable[str], written: Iterable[str]) -> None:
        """What the item in a slot is the last to read is let go after it."""
        read, written = self.names(read), self.names(written)
        self.left.subtract(read)
        for name in read | written:
            self.last[name] = max(self.last.get(name, slot), slot)
            if not self.left[name]:
                self.now -= self.sizes[name]
                self.live[self.last[name] + 1 : self.end] -= self.sizes[name]
