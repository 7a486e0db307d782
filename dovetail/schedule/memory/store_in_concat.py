"""Store what is concatenated where it is computed.

before:  b0 = f(a0);  b1 = g(b0);  b2 = h(b1);  ...;  b9[0] = b0;  b9[1] = b1;  b9[2] = b2;  ...
after:   b0 = f(a0);  b9[0] = b0;  b1 = g(b0);  b9[1] = b1;  b2 = h(b1);  b9[2] = b2;  ...

A kernel takes only so many steps of a loop. With the stores next to the steps, one holds both, and results that nobody
else reads are stored once; at the end, all would have to be there until they are copied. The whole is alive from its
first part on then, so it must fit beside what else is alive, as after any fusion. Few parts are left to `inline.py`,
which computes them where they are read.
"""

from __future__ import annotations

from collections import defaultdict

from dovetail.ir.dims import has_values
from dovetail.ir.liveness import loads, reads, writes
from dovetail.ir.loops import Group, Item, Program
from dovetail.schedule.fusion.inline import MOST_PIECES
from dovetail.schedule.memory.lifetimes import Places
from dovetail.schedule.memory.shared_concat import only_store


def store_early(program: Program, most: int) -> Program:
    """The program with its items in another order; `most`: bytes that may be alive at once."""
    parts = _parts(program)
    if not parts:
        return program
    lives, written = Places(program, most), _writers(program)
    for positions in parts.values():
        found = {at: _ready(program, at, written, lives.roots) for at in positions}
        earlier = {at: ready for at, ready in found.items() if ready is not None}
        if earlier:
            lives.let_move(earlier)
    order = sorted(range(len(program.items)), key=lambda at: (lives.places[at], at))
    return program.with_items(tuple(program.items[at] for at in order))


def _parts(program: Program) -> dict[str, list[int]]:
    """Where the parts of each buffer that has many are stored."""
    found: dict[str, list[int]] = defaultdict(list)
    for position, item in enumerate(program.items):
        store = only_store(item) if isinstance(item, Group) else None
        if store is not None:
            found[store.buffer.name].append(position)
    return {name: positions for name, positions in found.items() if len(positions) > MOST_PIECES}


def _writers(program: Program) -> dict[str, int]:
    """The last item that writes each buffer."""
    return {name: position for position, item in enumerate(program.items) for name in writes(item)}


def _ready(program: Program, at: int, written: dict[str, int], roots: dict[str, str]) -> int | None:
    """The kernel after which all that another reads is there; None if that is no kernel's work."""
    if _looks_up(program.items[at]):
        return None
    needed = {name for read in reads(program.items[at]) for name in (read, roots.get(read, read))}
    found = max((written[name] for name in needed if name in written), default=None)
    return found if found is not None and isinstance(program.items[found], Group) else None


def _looks_up(item: Item) -> bool:
    """Does it read where an index says, which is checked before?"""
    return isinstance(item, Group) and any(has_values(index) for load in loads(item) for index in load.index)
