"""A kernel writes its result over an input that dies there.

before:  library b1 = mm(...)                    b2[i, j] = gelu(b1[i, j])      two blocks are alive at once
after:   library b1 = mm(...)    view b2 = b1    b2[i, j] = gelu(b1[i, j])      one is

That is right where each element is read for the last time by what writes to its place: the iteration itself, or an
earlier loop of the same outer index. Kernels load all that a loop's body reads before they store anything of it. On a
GPU several threads may hold the same element, if a loop has fewer than the kernel has threads; a late one would read
the new value. So a loop counts only if it is as long as every other loop of its group.

The memory must be the program's own: temporaries, and what operators are known to allocate (`Row.fresh`), as long
as no other operator has seen it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dovetail.ir import dims
from dovetail.ir.dims import Dim, has_values
from dovetail.ir.liveness import last_uses, loads_of, output_buffers, reads, statement_roots, view_roots, writes
from dovetail.ir.loops import Batch, Buffer, Group, Item, LibraryCall, Load, Loop, Program, Store, View
from dovetail.ops.table import row_of
from dovetail.schedule.fusion.nest import count, extents, linear


def reuse(program: Program) -> Program:
    """The program in its final order, with a View in front of each item that writes to memory which dies there."""
    memory, items = _Memory(program), list[Item]()
    for position, item in enumerate(program.items):
        items += memory.taken_by(item, position)
        items.append(item)
    return program.with_items(tuple(items))


def _groups(item: Item) -> tuple[Group, ...]:
    return item.groups if isinstance(item, Batch) else (item,) if isinstance(item, Group) else ()


class _Memory:
    """`own`: buffers that the program allocates, by name, as long as only it knows them; `last`: the last item that
    needs what is in their memory."""

    def __init__(self, program: Program) -> None:
        self.roots, self.last = view_roots(program), last_uses(program)
        self.returned = output_buffers(program)
        self.latest: dict[str, Buffer] = {}  # what lies in memory of the program's own, where that is something else
        self.own: dict[str, Buffer] = {}
        self.stores: Counter[str] = Counter()
        for item in program.items:
            fresh = isinstance(item, LibraryCall) and row_of(item.operator).fresh
            if fresh or isinstance(item, (Group, Batch)):
                self.own |= {name: b for name, b in writes(item).items() if b.kind != "input"}
            for group in _groups(item):
                self.stores.update(s.buffer.name for s in group.statements() if isinstance(s, Store))
        for item in program.items:
            if isinstance(item, LibraryCall) and not row_of(item.operator).fresh:
                for name in reads(item):
                    self.own.pop(self.root(name), None)

    def root(self, name: str) -> str:
        """The buffer whose memory it is, for now."""
        while name in self.roots:
            name = self.roots[name]
        return name

    def taken_by(self, item: Item, position: int) -> Iterator[View]:
        groups = _groups(item)
        readers = Counter(root for group in groups for root in {self.root(name) for name in reads(group)})
        for group in groups:
            made = {self.root(name) for name in writes(group)}
            found = dict.fromkeys(self.root(name) for name in reads(group))
            dying = [self.own[r] for r in found if r in self.own and r not in made and readers[r] == 1]
            dying = [old for old in dying if self.last[old.name] == position]
            for number, place, store in _whole_stores(group):
                old = next((old for old in dying if self.fits(group, number, place, store, old)), None)
                if old is not None:
                    dying.remove(old)
                    yield self.take(store.buffer, old)

    def take(self, new: Buffer, old: Buffer) -> View:
        view = View(new, self.latest.get(old.name, old))
        self.roots[new.name], self.latest[old.name] = old.name, new
        self.last[old.name] = self.last[new.name]
        if new.name not in self.own:
            del self.own[old.name]
        return view

    def fits(self, group: Group, number: int, place: int, store: Store, old: Buffer) -> bool:
        """May this statement of this loop write where `old` is?"""
        new, loop = store.buffer, group.loops[number]
        if new.kind == "input" or new.name in self.roots or self.stores[new.name] != 1:
            return False
        if (new.dtype, new.device, new.span) != (old.dtype, old.device, old.span):
            return False
        if new.name in self.returned and (new.sizes, new.strides, new.offset) != (old.sizes, old.strides, old.offset):
            return False  # the caller gets the very tensor
        target = linear(new, store.index)
        return all(
            load.dtype == new.dtype and (at < number or at == number and statement <= place)
            and _address(load, group.loops[at], loop) == target
            for at, statement, load in _loads(group) if self.root(load.buffer.name) == old.name
        )  # fmt: skip


def _whole_stores(group: Group) -> Iterator[tuple[int, int, Store]]:
    """Stores of loops that are as long as every other one, with the numbers of loop and statement."""
    lengths = {count(loop.inner) for loop in group.loops if loop.inner}
    local = {buffer.name for buffer in group.locals}
    for number, loop in enumerate(group.loops):
        if len(lengths) > 1 or lengths and not loop.inner:
            continue
        for place, s in enumerate(loop.body):
            if isinstance(s, Store) and not s.scan and s.buffer.name not in local and not any(map(has_values, s.index)):
                yield number, place, s


def _loads(group: Group) -> Iterator[tuple[int, int, Load]]:
    for number, loop in enumerate(group.loops):
        for place, statement in enumerate(loop.body):
            yield from ((number, place, load) for load in loads_of(statement_roots(statement)))


def _address(load: Load, loop: Loop, other: Loop) -> Dim | None:
    """The element that the load reads, with the other loop's ranges in the place of its own; None if those differ."""
    if any(map(has_values, load.index)) or extents(loop.inner) != extents(other.inner):
        return None
    renamed = {dims.as_symbol(a): b for a, b in zip(loop.inner, other.inner, strict=True)}
    return dims.substitute(linear(load.buffer, load.index), renamed)
