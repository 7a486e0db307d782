"""What two groups must have in common to be the same kernel: everything but names; and a group under other names.

Repeated layers give groups that differ only in the names of ranges, buffers and results. Their
structures are equal, and writing the structure down is several times cheaper than the kernel. A group that got other
buffers of the same layout keeps what was written down. The kernel is made of the `renamed` group: names order what is
added up, and the next to ask may have others.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.ir import dims
from dovetail.ir.dims import Atom, Dim, Symbol
from dovetail.ir.loops import (
    Buffer,
    Check,
    Const,
    Expr,
    Group,
    Index,
    Load,
    Local,
    Loop,
    Op,
    Param,
    Reduce,
    Statement,
    Store,
    map_exprs,
    rewrite,
    value_exprs,
)
from dovetail.ir.ranges import extent, new_range


def structure_of(group: Group) -> Structure:
    """Written down once."""
    if group._structure is None:
        object.__setattr__(group, "_structure", Structure(group))
    found: Structure = group._structure
    return found


class Structure:
    """`key` is hashable; `buffers` are the group's, in the order in which the key numbers them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.buffers: list[Buffer] = []
        self._numbers: dict[str, int] = {}  # buffers by name
        self._ranges: dict[Symbol, int] = {}
        self._results: dict[str, int] = {}
        self._exprs: dict[Expr, int] = {}
        self._lines: list = []
        for buffer in group.locals:
            self.buffer(buffer)
        self.ranges(group.outer)
        for loop in group.loops:
            self.ranges(loop.inner)
            for statement in loop.body:
                self._lines.append(self.statement(statement))
        self.key = tuple(self._lines)

    def renamed(self) -> Group:
        """The group with numbers for names: groups of one key are one such group."""
        ranges: dict[Symbol, Dim] = {s: new_range(f"i{k}", s.extent) for s, k in self._ranges.items()}  # type: ignore[arg-type]
        buffers = {b.name: replace(b, name=name) for name, b in self.by_number().items()}
        return _Renaming("group", ranges, buffers, {n: f"r{k}" for n, k in self._results.items()}).group(self.group)

    def of(self, group: Group, buffers: Mapping[str, Buffer]) -> Structure | None:
        """That of the same group with others for the buffers of these names, if they have the same layouts."""
        others = [buffers.get(b.name, b) for b in self.buffers]
        alike = all(_layout(mine) == _layout(other) for mine, other in zip(self.buffers, others, strict=True))
        if not alike or len({b.name for b in others}) != len(others):
            return None
        made = copy.copy(self)
        made.group, made.buffers = group, others
        return made

    def by_number(self) -> dict[str, Buffer]:
        """The buffers under their names in the renamed group."""
        return {f"b{k}": buffer for k, buffer in enumerate(self.buffers)}

    def ranges(self, ranges: tuple[Dim, ...]) -> None:
        sizes = tuple(self.dim(extent(r)) for r in ranges)
        numbers = tuple(self._ranges.setdefault(dims.as_symbol(r), len(self._ranges)) for r in ranges)
        self._lines.append(("ranges", numbers, sizes))

    def statement(self, statement: Statement) -> tuple:
        if isinstance(statement, Store):
            place = tuple(map(self.dim, statement.index))
            return ("store", self.buffer(statement.buffer), place, self.expr(statement.value), statement.scan)
        if isinstance(statement, Check):
            return ("check", self.expr(statement.condition))
        value = self.expr(statement.value)
        assert isinstance(statement, Reduce)
        self._results[statement.name] = len(self._results)
        return ("reduce", statement.kind, value, statement.dtype)

    def buffer(self, buffer: Buffer) -> int:
        number = self._numbers.get(buffer.name)
        if number is None:
            number = self._numbers[buffer.name] = len(self.buffers)
            self.buffers.append(buffer)
            sizes = tuple(map(self.dim, buffer.sizes)) if buffer.kind == "local" else ()
            layout = tuple(map(self.dim, buffer.strides)), self.dim(buffer.offset)
            self._lines.append(("buffer", buffer.dtype, buffer.kind == "local", sizes, layout))
        return number

    def dim(self, dim: Dim) -> Any:
        if isinstance(dim, int):
            return dim
        return tuple((tuple(map(self.atom, monomial)), factor) for monomial, factor in dim.terms)

    def atom(self, atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return atom if atom.extent is None else ("range", self._ranges[atom])
        if isinstance(atom, dims.RuntimeIndex):
            return ("value", self.expr(atom.expr))
        assert isinstance(atom, dims.Binary)
        return (type(atom), self.dim(atom.left), self.dim(atom.right))

    def expr(self, root: Expr) -> int:
        """The number of an expression; iterative, as chains may be deep."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._exprs:
                stack.pop()
                continue
            waiting = [c for c in node.children if c not in self._exprs]
            if isinstance(node, Index):
                waiting += [c for c in value_exprs((node.dim,)) if c not in self._exprs]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self._lines.append(self.node(node))
            self._exprs[node] = len(self._exprs)
        return self._exprs[root]

    def node(self, node: Expr) -> tuple:
        if isinstance(node, Const):
            return ("const", repr(node.value), node.dtype)
        if isinstance(node, Param):
            return ("param", node.name, node.dtype)
        if isinstance(node, Index):
            return ("index", self.dim(node.dim))
        if isinstance(node, Load):
            mask = None if node.mask is None else self._exprs[node.mask]
            return ("load", self.buffer(node.buffer), tuple(map(self.dim, node.index)), mask)
        if isinstance(node, Local):
            return ("local", self._results[node.name])
        assert isinstance(node, Op)
        return ("op", node.name, tuple(self._exprs[a] for a in node.args), node.dtype)


def with_buffers(group: Group, name: str, buffers: Mapping[str, Buffer]) -> Group:
    """The group under another name, with others for the buffers of these names."""
    made = _Renaming(name, {}, buffers, {}).group(group)
    if group._structure is not None:
        object.__setattr__(made, "_structure", group._structure.of(made, buffers))
    return made


def _layout(buffer: Buffer) -> tuple:
    """What a key has of it, or more."""
    return buffer.dtype, buffer.kind == "local", buffer.sizes, buffer.strides, buffer.offset


class _Renaming:
    """Of ranges, buffers and results that are named in the mappings."""

    def __init__(
        self, name: str, ranges: Mapping[Symbol, Dim], buffers: Mapping[str, Buffer], results: Mapping[str, str]
    ) -> None:
        self.name, self.ranges, self.buffers, self.results = name, ranges, buffers, results
        self.memo: dict[Expr, Expr] = {}

    def group(self, group: Group) -> Group:
        loops = tuple(Loop(self.dims(loop.inner), tuple(map(self.statement, loop.body))) for loop in group.loops)
        return Group(self.name, self.dims(group.outer), loops, tuple(map(self.buffer, group.locals)))

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer.name, buffer)

    def dims(self, given: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(dims.substitute(d, self.ranges, self.expr) for d in given)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self.ranges, self.memo, self.leaf)

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, Local):
            return Local(self.results.get(node.name, node.name), node.dtype)
        assert isinstance(node, Load)
        return Load(self.buffer(node.buffer), node.index, node.mask)

    def statement(self, statement: Statement) -> Statement:
        renamed = map_exprs(statement, self.expr)
        if isinstance(renamed, Store):
            return replace(renamed, buffer=self.buffer(renamed.buffer), index=self.dims(renamed.index))
        if isinstance(renamed, Reduce):
            return replace(renamed, name=self.results.get(renamed.name, renamed.name))
        return renamed
