"""Collectives run beside what does not read their results: they are waited for where something does.

before:  library all_reduce: b1 = all_reduce(b0)           k2: b2 = sin(a0)    k3: b3 = b1 + b2
after:   library all_reduce: b1_begun = begin_all_reduce(b0)    k2: b2 = sin(a0)
         library all_reduce_wait: b1 = wait([b1_begun], [b0])    k3: b3 = b1 + b2

They begin where they are called, so in the order of all processes. Views of results come behind the wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from dovetail.ir.liveness import bucket_ends, reads, view_roots, writes
from dovetail.ir.loops import BufferRef, Item, LibraryCall, Program, View
from dovetail.ir.records import dataclass
from dovetail.ops.own.collectives import BEGINS, wait


def run_beside(program: Program) -> Program:
    if not any(map(_is_collective, program.items)):
        return program
    return program.with_items(tuple(_Beside(program).run()))


def _is_collective(item: Item) -> bool:
    return isinstance(item, LibraryCall) and item.operator in BEGINS and None not in item.results


@dataclass
class _UnderWay:
    call: LibraryCall
    place: int  # where it begins
    results: set[str]
    read: set[str]
    views: list[View] = field(default_factory=list)


class _Beside:
    def __init__(self, program: Program) -> None:
        self.program, self.roots = program, view_roots(program)
        self.items: list[Item] = []
        self.under_way: list[_UnderWay] = []

    def run(self) -> list[Item]:
        ends = bucket_ends(self.program)
        for position, item in enumerate(self.program.items):
            read, written = self.of(reads(item)), self.of(writes(item))
            later = next((each for each in self.under_way if isinstance(item, View) and read & each.results), None)
            if later is not None and isinstance(item, View):
                later.views.append(item)
                continue
            for each in [*self.under_way]:
                if read & each.results or written & (each.results | each.read):
                    self.end(each)
            if isinstance(item, LibraryCall) and _is_collective(item):
                self.under_way.append(_UnderWay(item, len(self.items), written, read))
            self.items.append(item)
            if position in ends:
                self.end_all()
        self.end_all()
        return self.items

    def of(self, names: Iterable[str]) -> set[str]:
        return {self.roots.get(name, name) for name in names}

    def end_all(self) -> None:
        for each in [*self.under_way]:
            self.end(each)

    def end(self, each: _UnderWay) -> None:
        """Wait here; where nothing was done meanwhile, it is one call."""
        self.under_way.remove(each)
        if each.place < len(self.items) - 1:
            results = [b for b in each.call.results if b is not None]
            begun = tuple(replace(b, name=f"{b.name}_begun", kind="temporary") for b in results)
            self.items[each.place] = replace(each.call, operator=BEGINS[each.call.operator], results=begun)
            given = tuple(map(BufferRef, begun)), tuple(map(BufferRef, reads(each.call).values()))
            self.items.append(LibraryCall(f"{each.call.name}_wait", wait, given, {}, tuple(results)))
        self.items += each.views
