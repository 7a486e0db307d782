"""Groups that are the same kernel for other buffers run at once: one launch for all parameters of an optimizer.

before:  k0: a0 = a0 + 1   k1: b1 = f(a0)   k2: a2 = a2 + 1   k3: b3 = f(a2)
after:   Batch(k0, k2)                      Batch(k1, k3)

A group may wait for others like it until something needs what it computes. Those wait that keep no temporary alive by
it: all they read is there until the end anyway. Nobody waits beyond the end of a bucket of outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from dovetail.ir import dimvalues
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import bucket_ends, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Batch, Buffer, Group, Item, Program
from dovetail.ir.records import dataclass
from dovetail.schedule.launch.advance import SMALL, advanced


def gather(program: Program, kernels: Mapping[str, Kernel]) -> Program:
    """`kernels` maps each group's name to its kernel."""
    return _Gathering(advanced(program, kernels), kernels).run()


@dataclass
class _Waiting:
    """`after`: the batches that must come before, all of smaller numbers."""

    groups: list[Group] = field(default_factory=list)
    after: set[int] = field(default_factory=set)


class _Gathering:
    def __init__(self, program: Program, kernels: Mapping[str, Kernel]) -> None:
        self.program, self.kernels, self.roots = program, kernels, view_roots(program)
        lasting = {b.name for b in program.inputs} | set(output_buffers(program))
        self.lasting = {self.roots.get(name, name) for name in lasting}
        self.items: list[Item] = []
        self.waiting: dict[int, _Waiting] = {}  # by number, in order
        self.latest: dict[str, int] = {}  # of a kernel's symbol
        self.writer: dict[str, int] = {}  # of a buffer: the last batch that writes it
        self.readers: dict[str, set[int]] = {}  # since then
        self.count = 0

    def run(self) -> Program:
        ends = bucket_ends(self.program)
        for position, item in enumerate(self.program.items):
            read = {self.roots.get(n, n): b for n, b in reads(item).items()}
            written = {self.roots.get(n, n) for n in writes(item)}
            after = self.needs(read.keys(), written)
            joins = isinstance(item, Group) and self.kernels[item.name].joins
            if isinstance(item, Group) and joins and all(map(self.may_wait, read, read.values())):
                self.wait(item, after, read.keys(), written)
            else:
                self.flush(after)
                self.items.append(item)
            if position in ends:
                self.flush(self.waiting)
        self.flush(self.waiting)
        return self.program.with_items(tuple(self.items))

    def needs(self, read: Iterable[str], written: set[str]) -> set[int]:
        """The batches that must come before."""
        numbers = {self.writer.get(name, -1) for name in (*read, *written)}
        return numbers.union(*(self.readers.get(name, ()) for name in written)) & self.waiting.keys()

    def may_wait(self, name: str, buffer: Buffer) -> bool:
        nbytes = buffer.numel * buffer.dtype.itemsize
        small = dimvalues.typical(nbytes) <= SMALL
        return small or name in self.lasting or self.writer.get(name, -1) in self.waiting

    def wait(self, group: Group, after: set[int], read: Iterable[str], written: set[str]) -> None:
        symbol = self.kernels[group.name].symbol
        number = self.latest.get(symbol, -1)
        if number not in self.waiting or number <= max(after, default=-1):
            number = self.latest[symbol] = self.count
            self.waiting[number] = _Waiting()
            self.count += 1
        self.waiting[number].groups.append(group)
        self.waiting[number].after |= after
        for name in written:
            self.writer[name], self.readers[name] = number, set()
        for name in read:
            self.readers.setdefault(name, set()).add(number)

    def flush(self, wanted: Iterable[int]) -> None:
        """Emit these batches, and what must come before them."""
        ahead, found = list(wanted), set[int]()
        while ahead:
            number = ahead.pop()
            if number in self.waiting and number not in found:
                found.add(number)
                ahead += self.waiting[number].after
        for number in sorted(found):
            groups = self.waiting.pop(number).groups
            self.items.append(groups[0] if len(groups) == 1 else Batch(f"many_{groups[0].name}", tuple(groups)))
