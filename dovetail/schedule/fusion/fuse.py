"""Put groups that walk the same memory into one kernel.

before:  A: for n: t[n] = x[n] + y[n]        B: for r: for h: s[r] += t[H*r + h]
         C: for r, h: out[r, h] = t[H*r + h] / s[r]
after:   for r: { for h: t[..] = x + y; s += t }  { for h: out[..] = t / s }

Groups are taken in order; each tries to join an earlier one, the most recent producer of what it
reads first. Joining moves either the newcomer up or the earlier group down, whichever the
dependences allow. Two groups may share outer ranges only if every element that one
reads from the other was written at the same outer index.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field

from dovetail.ir import dims, dimvalues
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.launch import LONGEST_ROW
from dovetail.ir.liveness import loads_of, reads, statement_roots, writes
from dovetail.ir.loops import DEEPEST, Buffer, Expr, Group, Item, Load, Local, Program, Store
from dovetail.ir.records import dataclass
from dovetail.schedule.fusion.align import Alignment, Names, align
from dovetail.schedule.fusion.cost import is_window
from dovetail.schedule.fusion.nest import Nest, Placed, count, extents, linear, map_statement
from dovetail.schedule.memory.lifetimes import SlotLifetimes

#: Statements in one kernel; beyond it compile time grows faster than memory traffic shrinks. Copies of what it computes
#: may be as many again.
MOST_STATEMENTS = 24
#: Outer iterations that keep several threads busy; with fewer, a row is not made longer.
ENOUGH_ROWS = 16
#: Work (elements) that one thread does in a few microseconds: parallelism does not matter below it.
SMALL = 16384


@dataclass(slots=True)
class FusionSlot:
    """A place in the new order: a nest, or an item that is no group."""

    nest: Nest | None
    item: Item | None
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


def fuse(program: Program, names: Names, most: int) -> list[FusionSlot]:
    """The program's items in their new order, groups joined; `most`: bytes that may be alive at once."""
    fuser = _Fuser(names, SlotLifetimes(program, most))
    for item in program.items:
        fuser.add(item)
    return [slot for slot in fuser.slots if slot is not None]


class _Fuser:
    def __init__(self, names: Names, lives: SlotLifetimes) -> None:
        self.names, self.lives = names, lives
        self.slots: list[FusionSlot | None] = []
        self.producer: dict[str, list[int]] = defaultdict(list)  # buffer -> slots that write it
        self.readers: dict[str, set[int]] = defaultdict(set)  # buffer -> slots that read it
        self.last_reader: dict[str, int] = {}
        self.last_check = -1

    def add(self, item: Item) -> None:
        if not isinstance(item, Group):
            self.append(FusionSlot(None, item, set(reads(item)), set(writes(item))))
            return
        nest = Nest.of(item, self.names)
        slot = FusionSlot(nest, None, set(reads(item)), set(writes(item)))
        if nest.checks:
            self.append(slot)
            self.last_check = len(self.slots) - 1
            return
        producers = self.producers(slot)
        for position in self.candidates(slot, producers):
            place = self.join(position, slot, next((p for p in producers if p != position), -1))
            if place is not None:
                self.grow(place)
                return
        self.append(slot)

    def append(self, slot: FusionSlot) -> None:
        self.lives.append(slot.reads, slot.writes)
        self.place(slot)

    def place(self, slot: FusionSlot) -> None:
        """In the next position."""
        self.note(slot, len(self.slots))
        self.slots.append(slot)

    def note(self, slot: FusionSlot, position: int) -> None:
        for name in slot.writes:
            if position not in self.producer[name]:
                self.producer[name].append(position)
        for name in slot.reads:
            self.readers[name].add(position)
            self.last_reader[name] = max(self.last_reader.get(name, -1), position)

    def producers(self, slot: FusionSlot) -> list[int]:
        """Of what the slot reads, the last one first."""
        return sorted({p for name in slot.reads for p in self.producer[name]}, reverse=True)

    def candidates(self, slot: FusionSlot, producers: list[int]) -> list[int]:
        """Producers of what the slot reads, then the last group that read the same buffer."""
        sharers = {self.last_reader[name] for name in slot.reads if name in self.last_reader}.difference(producers)
        found = producers + sorted(sharers, reverse=True)
        return [p for p in found if (s := self.slots[p]) is not None and s.nest is not None and not s.nest.checks]

    def join(self, position: int, slot: FusionSlot, before: int) -> int | None:
        """Where the newcomer and the group of an earlier slot are then. `before`: its last other producer."""
        target = self.slots[position]
        assert target is not None and target.nest is not None and slot.nest is not None
        if self.last_check > before and has_run_time_index(slot.nest):
            before = self.last_check
        up = before < position
        down = not up and self.independent_after(position, target)
        if not up and not down:
            return None
        moved = (target.reads, target.writes)
        put = (
            self.lives.raising(position, slot.reads, slot.writes) if up
            else self.lives.lowering(position, moved, slot.reads, slot.writes)
        )  # fmt: skip
        if put is None:
            return None
        nest = combine(target.nest, slot.nest, self.names)
        if nest is None:
            return None
        put()
        joined = FusionSlot(nest, None, target.reads | slot.reads, target.writes | slot.writes)
        if up:
            self.replace(position, joined)
            return position
        self.remove(position)
        self.place(joined)
        return len(self.slots) - 1

    def grow(self, place: int) -> None:
        """Take in other producers of what the joined groups read, as of two products of which one scales the other."""
        slot = self.slots[place]
        assert slot is not None
        for position in self.candidates(slot, self.producers(slot)):
            if position < place and not slot.reads.isdisjoint(self.slots[position].writes):  # type: ignore[union-attr]
                slot = self.sink(position, place) or slot

    def sink(self, position: int, place: int) -> FusionSlot | None:
        """The groups of two slots in the later one, if nothing in between needs what the earlier one writes."""
        target, slot = self.slots[position], self.slots[place]
        assert target is not None and target.nest is not None and slot is not None and slot.nest is not None
        if any(position < reader < place for name in target.writes for reader in self.readers[name]):
            return None
        put = self.lives.sinking(position, place, (target.reads, target.writes))
        nest = combine(target.nest, slot.nest, self.names) if put is not None else None
        if put is None or nest is None:
            return None
        put()
        joined = FusionSlot(nest, None, target.reads | slot.reads, target.writes | slot.writes)
        self.remove(position)
        self.replace(place, joined)
        return joined

    def replace(self, position: int, slot: FusionSlot) -> None:
        self.slots[position] = slot
        self.note(slot, position)

    def remove(self, position: int) -> None:
        gone = self.slots[position]
        assert gone is not None
        self.slots[position] = None
        for name in gone.writes:
            self.producer[name].remove(position)
        for name in gone.reads:
            self.readers[name].discard(position)

    def independent_after(self, position: int, target: FusionSlot) -> bool:
        """Does nothing after `position` read what `target` writes?"""
        return all(self.last_reader.get(name, -1) <= position for name in target.writes)


def has_run_time_index(nest: Nest) -> bool:
    return any(len(load.children) > (load.mask is not None) for _, load in nest.loads())


# ---------------------------------------------------------------- two nests into one


def combine(first: Nest, second: Nest, names: Names) -> Nest | None:
    """`first` then `second` over common outer ranges, or None."""
    if len(first.placed) + len(second.placed) > MOST_STATEMENTS * (1 + _is_copy(second, first)):
        return None
    if depth([*first.placed, *second.placed]) > DEEPEST or _window_in_rows(first, second):
        return None
    ways = (_combine_along(first, second, a, b, names) for a, b in _anchors(first, second))
    for joined in itertools.chain(ways, _as_one_row(first, second)):
        if joined is None or joined.scans and not _in_registers(joined):
            continue
        if _same_outer_index(joined, first.written()) and _pays(joined, first, second):
            return joined
    return None


def _as_one_row(first: Nest, second: Nest) -> Iterator[Nest]:
    """Without outer ranges, if the second reads a single element that the first has made of a row. Those of the second
    move inside, where it adds nothing up."""
    made = {s.buffer.name for _, s in first.stores() if not dims.symbols(linear(s.buffer, s.index))}
    alone = all(map(_unit, first.outer)) and (second.pointwise or all(map(_unit, second.outer)))
    if alone and not made.isdisjoint(second.read()) and any(p.inner for p in first.placed):
        placed = [*_moved(first, {}, (), [], {}), *_moved(second, {}, (), [], {})]
        yield Nest(first.names + second.names, (), _unify_inner(placed))


def _window_in_rows(first: Nest, second: Nest) -> bool:
    """Would a kernel of rows read windows?"""
    if first.pointwise and second.pointwise:
        return False
    return any(is_window(store.value) for nest in (first, second) for _, store in nest.stores())


def _is_copy(second: Nest, first: Nest) -> bool:
    """Does it only store elsewhere what `first` has computed? As a kernel of its own, it would read that again."""
    if len(second.placed) != 1:
        return False
    statement = second.placed[0].statement
    return (
        isinstance(statement, Store) and isinstance(statement.value, Load)
        and statement.value.buffer.name in first.written()
    )  # fmt: skip


Access = tuple[Placed, Buffer, Dim]


def depth(placed: Sequence[Placed]) -> int:
    """The greatest depth of an expression once values are used where they are stored, at most."""
    stored: dict[str, int] = {}
    deepest = 0
    for p in placed:
        roots = statement_roots(p.statement)
        read = max((stored.get(load.buffer.name, 0) for load in loads_of(roots)), default=0)
        made = max(root.depth for root in roots) + read
        deepest = max(deepest, made)
        if isinstance(p.statement, Store):
            stored[p.statement.buffer.name] = max(made, stored.get(p.statement.buffer.name, 0))
    return deepest


def _anchors(first: Nest, second: Nest) -> list[tuple[Access, Access]]:
    """Pairs of accesses to one buffer along which the nests may be aligned, the fullest first."""
    wanted = second.read()
    touched: dict[str, Access] = {}
    for p, load in first.loads():
        if load.buffer.name in wanted and load.mask is None:
            touched[load.buffer.name] = (p, load.buffer, linear(load.buffer, load.index))
    for p, store in first.stores():
        touched[store.buffer.name] = (p, store.buffer, linear(store.buffer, store.index))
    written = first.written()
    pairs = []
    for p, load in second.loads():
        if load.buffer.name in touched and load.mask is None and load.symbols:
            pairs.append((touched[load.buffer.name], (p, load.buffer, linear(load.buffer, load.index))))
    needed = [pair for pair in pairs if pair[0][1].name in written]
    chosen = needed or [pair for pair in pairs if dimvalues.typical(pair[0][1].numel) >= 1024]
    return sorted(chosen, key=lambda pair: -len(dims.symbols(pair[1][2])))[:4]


def _in_registers(nest: Nest) -> bool:
    """Is every row short enough for one program? What a scan gives cannot be computed again piece by piece."""
    lengths = [count(p.inner) for p in nest.placed]
    return all(isinstance(n, int) and n <= LONGEST_ROW for n in lengths)


def _combine_along(first: Nest, second: Nest, a: Access, b: Access, names: Names) -> Nest | None:
    ranges_a = [dims.as_symbol(r) for r in (*first.outer, *a[0].inner)]
    ranges_b = [dims.as_symbol(r) for r in (*second.outer, *b[0].inner)]
    if a[2] is b[2] and not dims.symbols(a[2]):
        return None
    shared = align(a[2], ranges_a, b[2], ranges_b, names)
    if shared is None:
        return None
    outer = _common_outer(first, second, shared)
    if outer is None:
        return None
    placed = _moved(first, shared.a, outer, shared.shared, shared.images_a)
    placed += _moved(second, shared.b, outer, shared.shared, shared.images_b)
    return Nest(first.names + second.names, outer, _unify_inner(placed))


def _common_outer(first: Nest, second: Nest, shared: Alignment) -> tuple[Dim, ...] | None:
    """The outer ranges of the joined nest: fixed by a side that has inner loops already."""
    sides = ((first, shared.images_a), (second, shared.images_b))
    fixed = [(n, images) for n, images in sides if not n.pointwise]
    if not fixed:
        whole = all(_unit(r) or dims.as_symbol(r) in images for n, images in sides for r in n.outer)
        return tuple(shared.shared) if whole else None
    wanted: list[Dim] | None = None
    for nest, images in fixed:
        found: list[Dim] = []
        for r in nest.outer:
            if not _unit(r):
                if dims.as_symbol(r) not in images:
                    return None
                found += images[dims.as_symbol(r)]
        if wanted is not None and set(wanted) != set(found):
            return None
        wanted = found if wanted is None else wanted
    assert wanted is not None
    inner_symbols = {part for nest, images in fixed for p in nest.placed for r in p.inner
                     for part in images.get(dims.as_symbol(r), ())}
    return None if inner_symbols & set(wanted) else tuple(wanted)


def _unit(r: Dim) -> bool:
    return dims.as_symbol(r).extent == 1


def _moved(
    nest: Nest, mapping: dict[Symbol, Dim], outer: tuple[Dim, ...], shared: list[Dim], images: dict[Symbol, list[Dim]]
) -> list[Placed]:
    """The nest's statements in the new ranges; its outer ranges that are not common move inside."""
    units = {dims.as_symbol(r): 0 for r in nest.outer if _unit(r)}
    mapping = {**units, **{symbol: to for symbol, to in mapping.items() if to is not dims.of_atom(symbol)}}
    common = set(outer)
    inside: list[Dim] = []
    for r in nest.outer:
        symbol = dims.as_symbol(r)
        if symbol not in units:
            inside += [part for part in images.get(symbol, [r]) if part not in common]
    order = {part: k for k, part in enumerate(shared)}
    if all(part in order for part in inside):
        inside.sort(key=order.__getitem__)
    memo: dict[Expr, Expr] = {}
    placed = []
    for p in nest.placed:
        inner = [part for r in p.inner for part in images.get(dims.as_symbol(r), [r])]
        placed.append(Placed((*inside, *inner), map_statement(p.statement, mapping, memo)))
    return placed


def _unify_inner(placed: list[Placed]) -> list[Placed]:
    """Inner ranges of equal extents get equal names, so that statements can share a loop."""
    known: dict[tuple[Dim, ...], tuple[Dim, ...]] = {}
    result = []
    for p in placed:
        target = known.setdefault(extents(p.inner), p.inner)
        if target != p.inner:
            mapping = dict(zip(p.symbols, target, strict=True))
            p = Placed(target, map_statement(p.statement, mapping, {}))
        result.append(p)
    return result


# ---------------------------------------------------------------- legality and profit


def _same_outer_index(nest: Nest, early: set[str]) -> bool:
    """Is everything that is read from `early` buffers written at the same outer index?"""
    stores: dict[str, list[tuple[Placed, Store]]] = defaultdict(list)
    for p, store in nest.stores():
        stores[store.buffer.name].append((p, store))
    outer = [dims.as_symbol(r) for r in nest.outer]
    for _, load in nest.loads():
        for _, store in stores.get(load.buffer.name, ()):
            if load.index == store.index:
                continue
            if not _same_row(store, load, outer):
                return False
    return True


def _same_row(store: Store, load: Load, outer: list[Symbol]) -> bool:
    """Rows written at different outer indices are disjoint intervals, and the load stays in its own."""
    to, at = linear(store.buffer, store.index), linear(load.buffer, load.index)
    steps = []
    for symbol in outer:
        step, other = dims.coefficient(to, symbol), dims.coefficient(at, symbol)
        if step is None or step != other or not isinstance(step, int) or not isinstance(symbol.extent, int):
            return to is at
        along = dims.of_atom(symbol) * step
        to, at = to - along, at - along
        if symbol.extent != 1:
            steps.append((step, symbol.extent))
    (lo, hi), (first, last) = dims.bounds(to), dims.bounds(at)
    if None in (lo, hi, first, last) or not (lo <= first and last <= hi):  # type: ignore[operator]
        return to is at
    reach = hi - lo + 1  # type: ignore[operator]
    for step, n in sorted(steps):
        if step < reach:
            return False
        reach = step * (n - 1) + reach
    return True


def _pays(joined: Nest, first: Nest, second: Nest) -> bool:
    """Would the joined nest keep the parallelism and the contiguous access of its parts?"""
    if all(not p.inner for p in joined.placed):
        return True
    rows = dimvalues.typical(count(joined.outer))
    halves = (first, joined.placed[: len(first.placed)]), (second, joined.placed[len(first.placed) :])
    moved_inside = any(nest.pointwise and any(p.inner for p in placed) for nest, placed in halves)
    if moved_inside and _column(joined):
        return False
    if rows < ENOUGH_ROWS:
        work = max(dimvalues.typical(count(p.inner)) for p in joined.placed)
        return work * rows <= SMALL or _one_pass(joined)
    return True


def _one_pass(nest: Nest) -> bool:
    """Reductions side by side over the same ranges, none waiting for another."""
    inner = {p.inner for p in nest.placed if p.inner}
    waits = any(p.inner and any(isinstance(n, Local) for n in p.nodes()) for p in nest.placed)
    stores_inside = any(p.inner and isinstance(p.statement, Store) for p in nest.placed)
    return len(inner) <= 1 and not waits and not stores_inside


def _column(nest: Nest) -> bool:
    """Do most accesses of the inner loops step by one along an outer range instead of an inner one?

    What is the same all along an inner loop is read once and counts for neither.
    """
    along_outer = along_inner = 0
    outer = [dims.as_symbol(r) for r in nest.outer]
    for p, load in nest.loads():
        if p.inner and not load.symbols.isdisjoint(p.symbols):
            position = linear(load.buffer, load.index)
            along_outer += any(dims.coefficient(position, s) == 1 and s.extent != 1 for s in outer)
            along_inner += any(dims.coefficient(position, s) == 1 for s in p.symbols)
    return along_outer > along_inner
