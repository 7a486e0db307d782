"""Groups that are the same kernel for other buffers run at once: one launch for all parameters of an optimizer.

before:  k0: a0 = a0 + 1   k1: b1 = f(a0)   k2: a2 = a2 + 1   k3: b3 = f(a2)
after:   Batch(k0, k2)                      Batch(k1, k3)

A group may wait for others like it until something needs what it computes. Those wait that keep no temporary alive by
it: all they read is there until the end anyway. Nobody waits beyond the end of a bucket of outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dovetail.ir import dimvalues
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import bucket_ends, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Batch, Buffer, Group, Item, Program
from dovetail.ir.records import dataclass

SMALL = 1 << 14  # bytes of a temporary that may as well live longer


def gather(program: Program, kernels: Mapping[str, Kernel]) -> Program:
    """`kernels` maps each group's name to its kernel."""
    return _Gathering(program, kernels).run()


@dataclass
class _Waiting:
    symbol: str
    groups: list[Group] = field(default_factory=list)


class _Gathering:
    def __init__(self, program: Program, kernels: Mapping[str, Kernel]) -> None:
        self.program, self.kernels, self.roots = program, kernels, view_roots(program)
        lasting = {b.name for b in program.inputs} | set(output_buffers(program))
        self.lasting = {self.roots.get(name, name) for name in lasting}
        self.items: list[Item] = []
        self.waiting: dict[int, _Waiting] = {}  # by number, in order
        self.latest: dict[str, int] = {}  # of a kernel's symbol
        self.writer: dict[str, int] = {}  # of a buffer: the last batch that writes it
        self.reader: dict[str, int] = {}
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
                self.flush(self.count)
        self.flush(self.count)
        return self.program.with_items(tuple(self.items))

    def needs(self, read: object, written: set[str]) -> int:
        """The last batch that must come before."""
        numbers = [self.writer.get(name, -1) for name in (*read, *written)]  # type: ignore[misc]
        return max([-1, *numbers, *(self.reader.get(name, -1) for name in written)])

    def may_wait(self, name: str, buffer: Buffer) -> bool:
        nbytes = buffer.numel * buffer.dtype.itemsize
        small = dimvalues.typical(nbytes) <= SMALL
        return small or name in self.lasting or self.writer.get(name, -1) in self.waiting

    def wait(self, group: Group, after: int, read: object, written: set[str]) -> None:
        symbol = self.kernels[group.name].symbol
        number = self.latest.get(symbol, -1)
        if number not in self.waiting or number <= after:
            number = self.latest[symbol] = self.count
            self.waiting[number] = _Waiting(symbol)
            self.count += 1
        self.waiting[number].groups.append(group)
        self.reader |= {name: max(number, self.reader.get(name, -1)) for name in read}  # type: ignore[attr-defined]
        self.writer |= {name: max(number, self.writer.get(name, -1)) for name in written}

    def flush(self, last: int) -> None:
        """Emit the batches up to this one."""
        for number in [n for n in self.waiting if n <= last]:
            groups = self.waiting.pop(number).groups
            self.items.append(groups[0] if len(groups) == 1 else Batch(f"many_{groups[0].name}", tuple(groups)))
