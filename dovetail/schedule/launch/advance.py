"""Little that is computed of a program's inputs, or of such, comes as early as the same of other inputs: one launch for
all.

before:  k0: b0 = a0   k1: a0 = a0 + 1   ...b0...   k2: b2 = a1   k3: a1 = a1 + 1   ...b2...
after:   k0: b0 = a0   k2: b2 = a1       k1: a0 = a0 + 1   ...b0...   k3: a1 = a1 + 1   ...b2...

Each layer of a model that generates words copies the number of words before it counts on. A recommender's tables sort
the rows that their gradients have.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.ir import dimvalues
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import loads, output_buffers, reads, view_roots, writes
from dovetail.ir.loops import Check, Group, Item, Program, View

SMALL = 1 << 14  # bytes of a temporary that may as well live longer


def advanced(program: Program, kernels: Mapping[str, Kernel]) -> Program:
    """`kernels` maps each group's name to its kernel."""
    roots = view_roots(program)
    outside = {b.name for b in program.inputs}
    lasting = outside | {roots.get(name, name) for name in output_buffers(program)}
    places: list[list[Item]] = []
    first: dict[str, int] = {}  # of a kernel's symbol: where groups that may come early are
    written: dict[str, int] = {}  # the last place that writes to it
    early: set[str] = set()  # what such groups made, for others
    for item in program.items:
        place = len(places)
        if isinstance(item, Group) and kernels[item.name].joins and _little(item, outside | early, lasting):
            symbol = kernels[item.name].symbol
            place = first.setdefault(symbol, place)
            if any(written.get(roots.get(name, name), -1) > place for name in reads(item)):
                place = first[symbol] = len(places)
            early |= writes(item).keys()
        if isinstance(item, View) and roots[item.result.name] in early:
            place = written[roots[item.result.name]]
            early.add(item.result.name)
        if place == len(places):
            places.append([])
        places[place].append(item)
        for name in writes(item):
            root = roots.get(name, name)
            written[root] = max(place, written.get(root, place))
    return program.with_items(tuple(item for together in places for item in together))


def _little(group: Group, outside: set[str], lasting: set[str]) -> bool:
    """Is it of what is there early, into small temporaries, and does nothing have to be checked before?"""
    made = writes(group).values()
    if not reads(group).keys() <= outside or any(b.name in lasting for b in made):
        return False
    if any(isinstance(s, Check) for s in group.statements()) or any(load.children for load in loads(group)):
        return False
    return all(dimvalues.typical(b.numel * b.dtype.itemsize) <= SMALL for b in made)
