"""Concatenations that begin alike share one buffer.

before:  a = [x, y];  ... z computed from a ...;  b = [x, y, z]        x and y are copied twice
after:   b[:2] = [x, y];  ... z computed from b[:2] ...;  b[2:] = [z]

A network whose every layer reads all layers before it copies each feature once instead of once for
every later layer, and keeps one buffer instead of one for each layer. Since the shorter concatenation is where the
longer one begins, its indices are valid in the longer one as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from dovetail.ir import dimvalues
from dovetail.ir.liveness import output_buffers, reads, writes
from dovetail.ir.loops import Buffer, Expr, Group, Item, Load, Loop, Program, Reduce, Statement, Store, rewrite

Piece = tuple[Any, ...]


def share_prefixes(program: Program) -> Program:
    """Redirect every concatenation that is the beginning of a longer one to that one."""
    cats = _concatenations(program)
    targets = _targets(cats)
    if not targets:
        return program
    written: set[tuple[str, Piece]] = set()
    items: list[Item] = []
    for item in program.items:
        if isinstance(item, Group):
            store = only_store(item)
            if store is not None and store.buffer.name in cats:
                target = targets.get(store.buffer.name, store.buffer)
                key = (target.name, _piece(item, store))
                if key in written:
                    continue
                written.add(key)
            item = _redirected(item, targets)
        items.append(item)
    return program.with_items(tuple(items))


def only_store(group: Group) -> Store | None:
    """What a group of one store and nothing else stores."""
    if len(group.loops) != 1 or group.loops[0].inner or len(group.loops[0].body) != 1:
        return None
    statement = group.loops[0].body[0]
    return statement if isinstance(statement, Store) else None


def _piece(group: Group, store: Store) -> Piece:
    """What is stored where: equal for the same part of two concatenations, whatever follows it."""
    return (group.outer, store.index, store.value)


def _concatenations(program: Program) -> dict[str, tuple[Buffer, tuple[Piece, ...]]]:
    """Buffers written by several groups of one store each, in order, and read by groups alone."""
    pieces: dict[str, list[Piece]] = defaultdict(list)
    buffers: dict[str, Buffer] = {}
    unfit = set(output_buffers(program))
    for item in program.items:
        store = only_store(item) if isinstance(item, Group) else None
        if store is not None:
            pieces[store.buffer.name].append(_piece(item, store))  # type: ignore[arg-type]
            buffers[store.buffer.name] = store.buffer
        else:
            unfit |= writes(item).keys()
        if not isinstance(item, Group):
            unfit |= reads(item).keys()
    return {n: (buffers[n], tuple(p)) for n, p in pieces.items() if len(p) > 1 and n not in unfit}


def _targets(cats: dict[str, tuple[Buffer, tuple[Piece, ...]]]) -> dict[str, Buffer]:
    """shorter -> the longest concatenation that begins with it."""
    longest: dict[tuple[Piece, ...], Buffer] = {}
    targets: dict[str, Buffer] = {}
    for name, (buffer, pieces) in sorted(cats.items(), key=lambda kv: -len(kv[1][1])):
        host = longest.get(pieces)
        if host is not None and host.dtype is buffer.dtype and _one_dimension_shorter(buffer, host):
            targets[name] = host
            continue
        for length in range(2, len(pieces) + 1):
            longest.setdefault(pieces[:length], buffer)
    return targets


def _one_dimension_shorter(short: Buffer, long: Buffer) -> bool:
    """Equal sizes but for the one that is concatenated, and the same order of dimensions in memory."""
    if len(short.sizes) != len(long.sizes):
        return False
    differing = sum(a != b for a, b in zip(short.sizes, long.sizes, strict=True))
    return differing <= 1 and _order(short) == _order(long)


def _order(buffer: Buffer) -> list[int]:
    return sorted(range(len(buffer.sizes)), key=lambda k: -dimvalues.typical(buffer.strides[k]))


def _redirected(group: Group, targets: dict[str, Buffer]) -> Group:
    memo: dict[Expr, Expr] = {}

    def leaf(node: Expr) -> Expr | None:
        target = targets.get(node.buffer.name) if isinstance(node, Load) else None
        return None if target is None else Load(target, node.index, node.mask)  # type: ignore[attr-defined]

    def moved(statement: Statement) -> Statement:
        if isinstance(statement, Store):
            buffer = targets.get(statement.buffer.name, statement.buffer)
            return replace(statement, buffer=buffer, value=rewrite(statement.value, {}, memo, leaf))
        if isinstance(statement, Reduce):
            return Reduce(statement.name, statement.kind, rewrite(statement.value, {}, memo, leaf), statement.dtype)
        return type(statement)(rewrite(statement.condition, {}, memo, leaf), statement.message)

    loops = tuple(Loop(loop.inner, tuple(map(moved, loop.body))) for loop in group.loops)
    return Group(group.name, group.outer, loops, group.locals)
