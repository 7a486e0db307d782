"""Write an input's new value where the input is, instead of copying it there at the end.

before:  b3[i] = a0[i] - a1[i] * rate                 mutate a0 = b3
after:   a0[i] = a0[i] - a1[i] * rate                 mutate a0 = a0

That is right where nothing reads the old value any more: not another element than the one that is written, no later
item, and no later statement, for which the statements of a loop change places. And only where each element has a place
of its own: an expanded input has several of its elements written by several iterations, which no kernel may do.

A library call that writes at some indices of a copy does so in the input itself, as the program said:

before:  b0 = aten.index_copy(a0, 1, a1, a2)         mutate a0 = b0
after:   a0 = aten.index_copy_(a0, 1, a1, a2)        mutate a0 = a0
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch

from dovetail.ir.aten import Subprogram
from dovetail.ir.devices import traits
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
from dovetail.ops.calls.effects import may_raise
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.rules.layout import share_places
from dovetail.ops.lowering.indexing import written_at
from dovetail.ops.table import row_of
from dovetail.schedule.memory.put import as_kernel


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
        elif mine and isinstance(item, LibraryCall):
            (old,) = mine.values()
            called = dataclasses.replace(item, operator=_twin(item), results=(old,))
            item = as_kernel(item, old) or called
            targets |= mine
        items.append(item)
    mutated = tuple((old, targets.get(new.name, new)) for old, new in program.mutated)
    return dataclasses.replace(program, items=tuple(items), mutated=mutated)


class _Uses:
    """At which positions buffers are written and read, and from which one on no error is raised."""

    def __init__(self, program: Program) -> None:
        self.written, self.read = defaultdict(list), defaultdict(list)
        self.checked = max((position for position, item in enumerate(program.items) if _may_raise(item)), default=-1)
        self.roots = view_roots(program)
        self.viewed = {item.base.name for item in program.items if isinstance(item, View)}
        returned = {o.value.name for o in program.outputs if isinstance(o.value, Buffer)}
        self.fixed = returned | {self.roots[name] for name in returned if name in self.roots}
        for position, item in enumerate(program.items):
            for name in writes(item):
                self.written[name].append(position)
            for name in reads(item):
                self.read[self.roots.get(name, name)].append(position)
            if isinstance(item, View):
                self.fixed.add(item.result.name)
            elif isinstance(item, LibraryCall) and _is_view(item):
                self.fixed |= set(reads(item))

    def place(self, old: Buffer, new: Buffer) -> int | None:
        """The one position at which a new value is written that may lie where the old one does."""
        same = (old.sizes, old.dtype, old.device) == (new.sizes, new.dtype, new.device) and new.kind != "input"
        if not same or len(self.written[new.name]) != 1 or self.fixed & {old.name, new.name}:
            return None
        (at,) = self.written[new.name]
        return at if all(p <= at for p in self.read[old.name]) and not _overlaps_itself(old) else None


def _candidates(program: Program) -> dict[str, tuple[int, Buffer]]:
    """New value → (the position of what computes it, the input), as far as other items allow it.

    Until the last error may have been raised, nothing of the caller's may be written.
    """
    uses, found = _Uses(program), {}
    for old, new in program.mutated:
        at = uses.place(old, new)
        if at is None or at < uses.checked:
            continue
        item = program.items[at]
        if isinstance(item, Group):
            fits = at > uses.checked and new.name not in uses.viewed
        else:
            fits = old.strides == new.strides and _writes_into(item, old, uses.roots)
        if fits:
            found[new.name] = at, old
    return found


def _is_view(call: LibraryCall) -> bool:
    return not isinstance(call.operator, Subprogram) and facts(call.operator).view


def _writes_into(item: Item, old: Buffer, roots: dict[str, str]) -> bool:
    """Does the item call what can write into its first argument, which is that input and no other's memory?"""
    if not isinstance(item, LibraryCall) or _twin(item) is None or item.args[0] != BufferRef(old):
        return False
    others = reads(dataclasses.replace(item, args=item.args[1:]))
    return old.name not in {roots.get(name, name) for name in others}


def _twin(call: LibraryCall) -> Any:
    """The operator that does in place what this one does to a copy; None for those that write everywhere."""
    if not row_of(call.operator).writes_at_indices:
        return None
    name = call.operator._schema.name.removeprefix("aten::")
    return getattr(getattr(torch.ops.aten, f"{name}_"), call.operator._overloadname)


def _may_raise(item: Item) -> bool:
    if isinstance(item, LibraryCall):
        return may_raise(item.operator) and not _checked(item)
    return isinstance(item, Group) and any(isinstance(s, Check) for s in item.statements())


def _checked(call: LibraryCall) -> bool:
    """Has lowering checked the indices at which the call writes? GPUs raise no errors for them that can be caught."""
    result = call.results[0]
    if isinstance(call.operator, Subprogram) or result is None:
        return False
    places = written_at(call.operator, _buffers(call.args))
    return bool(places) and (result.kind == "output" or not traits(result.device).host)


def _buffers(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_buffers, value))
    return value.buffer if isinstance(value, BufferRef) else value


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
    if not isinstance(statement, Store) or statement.buffer.name not in targets:
        return statement
    return dataclasses.replace(statement, buffer=targets[statement.buffer.name])


def _loads(statements: Iterable[Statement]) -> Iterable[Load]:
    roots = [root for s in statements for root in statement_roots(s)]
    return loads_of(roots)


def _stores(statements: Iterable[Statement]) -> Iterable[str]:
    return (s.buffer.name for s in statements if isinstance(s, Store))


def _renamed(item: Item, targets: dict[str, Buffer]) -> Item:
    """The item reading inputs where it read their new values."""
    if not targets.keys() & reads(item).keys():
        return item
    if isinstance(item, View):
        return dataclasses.replace(item, base=targets[item.base.name])
    if isinstance(item, LibraryCall):
        args: Any = _references(item.args, targets)
        kwargs = {k: _references(v, targets) for k, v in item.kwargs.items()}
        return dataclasses.replace(item, args=args, kwargs=kwargs)
    assert isinstance(item, Group)
    memo: dict[Expr, Expr] = {}

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in targets:
            return None
        return Load(targets[node.buffer.name], node.index, node.mask)

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
