"""Write an input's new value where the input is, instead of copying it there at the end.

before:  b3[i] = a0[i] - a1[i] * rate                 mutate a0 = b3
after:   a0[i] = a0[i] - a1[i] * rate                 mutate a0 = a0

That is right where nothing reads the old value any more: not another element than the one that is written, no later
item, and no later statement, for which the statements of a loop change places. And only where each element has a place
of its own: an expanded input has several of its elements written by several iterations, which no kernel may do.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from dovetail.ir.aten import Subprogram
from dovetail.ir.liveness import loads_of, reads, statement_roots, view_roots, writes
from dovetail.ir.loops import (
    Buffer,
    BufferRef,
    Check,
    Expr,
    Group,
    Item,
    LibraryCall,
    Load,
    Loop,
    Program,
    Statement,
    Store,
    View,
    map_exprs,
    rewrite,
)
from dovetail.ops.effects import may_refuse
from dovetail.ops.fake.layout import share_places
from dovetail.ops.schema import facts


def write_in_place(program: Program) -> Program:
    """The program with as many new values as possible stored into the inputs that they are for."""
    wanted = _candidates(program)
    if not wanted:
        return program
    targets: dict[str, Buffer] = {}
    items: list[Item] = []
    stored: dict[int, dict[str, Buffer]] = defaultdict(dict)
    for new, (at, old) in wanted.items():
        stored[at][new] = old
    for position, item in enumerate(program.items):
        mine = stored.get(position)
        item = _renamed(item, targets)
        if mine and isinstance(item, Group):
            item, done = _stored(item, mine)
            targets |= done
        items.append(item)
    mutated = tuple((old, targets.get(new.name, new)) for old, new in program.mutated)
    return dataclasses.replace(program, items=tuple(items), mutated=mutated)


def _candidates(program: Program) -> dict[str, tuple[int, Buffer]]:
    """New value → (the position of the group that computes it, the input), as far as other items allow it."""
    written, read = defaultdict(list), defaultdict(list)
    checks = -1
    roots = view_roots(program)
    returned = {o.value.name for o in program.outputs if isinstance(o.value, Buffer)}
    fixed = returned | {roots[name] for name in returned if name in roots}
    inputs = {b.name for b in program.inputs}
    for position, item in enumerate(program.items):
        for name in writes(item):
            written[name].append(position)
        for name in reads(item):
            read[roots.get(name, name)].append(position)
        if isinstance(item, View):
            fixed |= {item.result.name, item.base.name} - inputs
        if isinstance(item, LibraryCall) and not isinstance(item.operator, Subprogram) and facts(item.operator).view:
            fixed |= set(reads(item))
        if _may_raise(item):
            checks = position  # until it has passed, nothing of the caller's may be written
    found = {}
    for old, new in program.mutated:
        same = (old.sizes, old.dtype, old.device) == (new.sizes, new.dtype, new.device) and new.kind != "input"
        places = written[new.name]
        if same and len(places) == 1 and not fixed & {old.name, new.name}:
            (at,) = places
            last = all(p <= at for p in read[old.name])
            if at > checks and last and isinstance(program.items[at], Group) and not _overlaps_itself(old):
                found[new.name] = (at, old)
    return found


def _may_raise(item: Item) -> bool:
    if isinstance(item, LibraryCall):
        return may_refuse(item.operator)
    return isinstance(item, Group) and any(isinstance(s, Check) for s in item.statements())


def _overlaps_itself(buffer: Buffer) -> bool:
    """Is it known that it does? Layouts that change from call to call are looked at before each."""
    if all(isinstance(n, int) for n in (*buffer.sizes, *buffer.strides)):
        return share_places(buffer.sizes, buffer.strides)
    return any(step == 0 and size != 1 for size, step in zip(buffer.sizes, buffer.strides, strict=True))


def _stored(group: Group, wanted: dict[str, Buffer]) -> tuple[Group, dict[str, Buffer]]:
    """The group with the stores to `wanted` redirected as far as its own loads allow it, and which those are."""
    done: dict[str, Buffer] = {}
    loops = []
    for number, loop in enumerate(group.loops):
        others = [s for k, other in enumerate(group.loops) if k != number for s in other.body]
        elsewhere = {load.buffer.name for load in _loads(others)} | set(_stores(others))
        mine = {n: old for n, old in wanted.items() if n not in elsewhere and old.name not in elsewhere}
        body, stored = _ordered(loop.body, mine)
        done |= stored
        loops.append(Loop(loop.inner, body))
    return dataclasses.replace(group, loops=tuple(loops)), done


def _ordered(body: tuple[Statement, ...], wanted: dict[str, Buffer]) -> tuple[tuple[Statement, ...], dict[str, Buffer]]:
    """Statements in an order in which each store to an input comes after all that load the old value."""
    every = list(_loads(body))
    loaded = [{load.buffer.name for load in _loads([s])} for s in body]
    own = {s.buffer.name: k for k, s in enumerate(body) if isinstance(s, Store)}
    wanted = {n: old for n, old in wanted.items() if n in own and _same_place(body[own[n]], old, every)}
    while wanted:
        before = {k: {own[n] for n in names if n in own} for k, names in enumerate(loaded)}
        for name, old in wanted.items():
            before[own[name]] |= {k for k, names in enumerate(loaded) if old.name in names}
        try:
            order = TopologicalSorter({k: sorted(first - {k}) for k, first in before.items()}).static_order()
            return tuple(_redirected(body[k], wanted) for k in order), wanted
        except CycleError as error:
            cycle = set(error.args[1])
            dropped = next((n for n in wanted if own[n] in cycle), None)
            if dropped is None:
                break
            del wanted[dropped]
    return body, {}


def _same_place(store: Statement, old: Buffer, loads: list[Load]) -> bool:
    """Is the old value loaded only where the new one is stored, and the new one not at all?"""
    assert isinstance(store, Store)
    mine = [load for load in loads if load.buffer.name in (old.name, store.buffer.name)]
    return all(load.buffer.name == old.name and load.index == store.index and load.mask is None for load in mine)


def _redirected(statement: Statement, targets: dict[str, Buffer]) -> Statement:
    target = targets.get(statement.buffer.name) if isinstance(statement, Store) else None
    return statement if target is None else dataclasses.replace(statement, buffer=target)  # type: ignore[type-var]


def _loads(statements: Iterable[Statement]) -> Iterable[Load]:
    roots = [root for s in statements for root in statement_roots(s)]
    return loads_of(roots)


def _stores(statements: Iterable[Statement]) -> Iterable[str]:
    return (s.buffer.name for s in statements if isinstance(s, Store))


def _renamed(item: Item, targets: dict[str, Buffer]) -> Item:
    """The item reading inputs where it read their new values."""
    if not targets.keys() & reads(item).keys():
        return item
    if isinstance(item, LibraryCall):
        args, kwargs = _references(item.args, targets), {k: _references(v, targets) for k, v in item.kwargs.items()}
        return dataclasses.replace(item, args=args, kwargs=kwargs)
    assert isinstance(item, Group)
    memo: dict[Expr, Expr] = {}

    def leaf(node: Expr) -> Expr | None:
        target = targets.get(node.buffer.name) if isinstance(node, Load) else None
        return None if target is None else Load(target, node.index, node.mask)  # type: ignore[union-attr]

    loops = tuple(
        Loop(loop.inner, tuple(map_exprs(s, lambda e: rewrite(e, {}, memo, leaf)) for s in loop.body))
        for loop in item.loops
    )
    return dataclasses.replace(item, loops=loops)


def _references(value: object, targets: dict[str, Buffer]) -> object:
    if isinstance(value, BufferRef):
        return BufferRef(targets.get(value.buffer.name, value.buffer))
    if isinstance(value, (tuple, list)):
        return type(value)(_references(v, targets) for v in value)
    return value
