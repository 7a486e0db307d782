"""Gradients that leave a backward program in buckets, as soon as they are computed: who takes them goes on with them
meanwhile, as processes do that average theirs.

before:  b0 = mm(...)  b1 = mm(...)  k2: b2 = sum(...)  view b3 = b0       output b1, b2, b3
after:   b0 = mm(...)  view b3 = b0  b1 = mm(...)  k2: b2 = sum(...)       output b1 in bucket 1, b2 in bucket 1,
                                                                           b3 in bucket 0

A bucket is full when it has so many bytes, as one of `DistributedDataParallel` is. Whoever has been given a gradient
may write to it, and to what it is the gradient of, as an optimizer does in a hook: so it leaves when nothing reads the
memory of either any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dovetail.ir import dimvalues
from dovetail.ir.kernel import Buckets
from dovetail.ir.liveness import output_buffers, output_ends, reads, view_roots, writes
from dovetail.ir.loops import Buffer, Check, Group, Item, LibraryCall, Program, View
from dovetail.ops.calls.effects import may_raise
from dovetail.ops.calls.schema import facts


def in_buckets(program: Program, first: int, others: int, kept: Sequence[int]) -> Program:
    """`first`: bytes of the first bucket, `others`: of each later one. `kept`: the places of the outputs that are the
    gradients of the first parameters. A program whose outputs fit into one bucket stays as it is."""
    ordered = divided(program, (), kept)
    ends = output_ends(ordered)
    together: dict[int, list[int]] = defaultdict(list)
    for place, output in enumerate(program.outputs):
        if isinstance(output.value, Buffer):
            together[ends[place]].append(place)
    buckets: list[list[int]] = [[]]
    for end in sorted(together):
        if _bytes(program, buckets[-1]) >= (first if len(buckets) == 1 else others):
            buckets.append([])
        buckets[-1] += together[end]
    return program if len(buckets) == 1 else replace(ordered, buckets=tuple(tuple(sorted(b)) for b in buckets))


def divided(program: Program, buckets: Buckets, kept: Sequence[int]) -> Program:
    """The program with these buckets, and in an order in which what it returns is computed as soon as it can be."""
    own: dict[int, Any] = dict(zip(kept, program.parameters(), strict=False))
    outputs = tuple(replace(output, after=own.get(k)) for k, output in enumerate(program.outputs))
    return replace(program, items=_early(program), outputs=outputs, buckets=buckets)


def _bytes(program: Program, places: list[int]) -> int:
    values = (program.outputs[k].value for k in places)
    return sum(dimvalues.typical(b.numel * b.dtype.itemsize) for b in values)


def _early(program: Program) -> tuple[Item, ...]:
    """The items; those that compute nothing but outputs come right behind the last one that they need, and views of
    outputs behind what they are of."""
    roots = view_roots(program)
    returned = {roots.get(name, name) for name in output_buffers(program)}
    behind: dict[int, list[int]] = defaultdict(list)  # the items that come at the place of another, in order
    views: dict[int, list[int]] = defaultdict(list)  # those that come right behind the very item
    read: dict[str, int] = {}  # by a buffer's root: the place of its last reader,
    written: dict[str, int] = {}  # and that of its last writer,
    writer: dict[str, int] = {}  # and that itself
    for position, item in enumerate(program.items):
        reading, writing = ({roots.get(name, name) for name in names} for names in (reads(item), writes(item)))
        alone = writing <= returned
        if isinstance(item, View) and alone:
            views[writer.get(next(iter(writing)), -1)].append(position)
            continue
        place = position
        if alone and _movable(item):
            needed = [written.get(name, -1) for name in reading | writing]
            place = max([-1, *needed, *(read.get(name, -1) for name in writing)])
        behind[place].append(position)
        read |= {name: max(place, read.get(name, -1)) for name in reading}
        written |= {name: max(place, written.get(name, -1)) for name in writing}
        writer |= dict.fromkeys(writing, position)
    order = [-1, *(position for place in range(-1, len(program.items)) for position in behind[place])]
    return tuple(program.items[k] for each in order for k in (each, *views[each]) if k >= 0)


def _movable(item: Item) -> bool:
    """Is it all the same when it runs? What may raise does so before anything is written to."""
    if isinstance(item, LibraryCall):
        known = facts(item.operator)
        return not (may_raise(item.operator) or known.random or known.written)
    return isinstance(item, Group) and not any(isinstance(statement, Check) for statement in item.statements())
