"""A group while it is being scheduled: outer ranges, and statements each with its own inner ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import loads_of, nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Expr, Group, Load, Local, Reduce, Statement, Store, rewrite
from dovetail.ir.ranges import extent
from dovetail.ir.records import dataclass
from dovetail.schedule.fusion.align import Names


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement and the inner ranges it runs over, slowest first."""

    inner: tuple[Dim, ...]
    statement: Statement

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(map(dims.as_symbol, self.inner))

    def nodes(self) -> Iterator[Expr]:
        return nodes(statement_roots(self.statement))


@dataclass(slots=True)
class Nest:
    """`placed` is in dependence order. A nest whose every statement sits at the outer level
    is pointwise: its ranges may be split, reordered and moved inside freely."""

    names: list[str]
    outer: tuple[Dim, ...]
    placed: list[Placed]
    _stores: list[tuple[Placed, Store]] | None = field(default=None, init=False, repr=False)
    _loads: list[tuple[Placed, Load]] | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, group: Group, names: Names) -> Nest:
        """Every range and every reduction gets a new name, so that nests can be put together."""
        outer = {dims.as_symbol(r): names.range(extent(r)) for r in group.outer}
        reductions = {s.name: names.local() for s in group.statements() if isinstance(s, Reduce)}
        placed = []
        for loop in group.loops:
            inner = {dims.as_symbol(r): names.range(extent(r)) for r in loop.inner}
            memo: dict[Expr, Expr] = {}
            for statement in loop.body:
                moved = map_statement(statement, {**outer, **inner}, memo, reductions)
                placed.append(Placed(tuple(inner.values()), moved))
        return cls([group.name], tuple(outer.values()), placed)

    @property
    def reduces(self) -> bool:
        return any(isinstance(p.statement, Reduce) for p in self.placed)

    @property
    def pointwise(self) -> bool:
        return all(not p.inner for p in self.placed) and not self.reduces

    @property
    def scans(self) -> bool:
        return any(store.scan for _, store in self.stores())

    @property
    def checks(self) -> bool:
        return any(isinstance(p.statement, Check) for p in self.placed)

    def stores(self) -> list[tuple[Placed, Store]]:
        if self._stores is None:
            self._stores = [(p, p.statement) for p in self.placed if isinstance(p.statement, Store)]
        return self._stores

    def loads(self) -> list[tuple[Placed, Load]]:
        """Those of each statement."""
        if self._loads is None:
            self._loads = [(p, load) for p in self.placed for load in loads_of(statement_roots(p.statement))]
        return self._loads

    def written(self) -> set[str]:
        return {s.buffer.name for _, s in self.stores()}

    def read(self) -> set[str]:
        return {load.buffer.name for _, load in self.loads()}


@dims.cached
def linear(buffer: Buffer, index: tuple[Dim, ...]) -> Dim:
    """The element's position counted from the buffer's data pointer."""
    position = buffer.offset
    for i, stride in zip(index, buffer.strides, strict=True):
        position = position + i * stride
    return position


def map_statement(
    statement: Statement,
    mapping: Mapping[Symbol, Dim],
    memo: dict[Expr, Expr],
    reductions: Mapping[str, str] | None = None,
) -> Statement:
    """The statement with its range symbols, and the names of reductions, replaced."""

    def leaf(node: Expr) -> Expr | None:
        return Local(reductions[node.name], node.dtype) if isinstance(node, Local) and reductions else None

    def moved(expr: Expr) -> Expr:
        if not reductions and expr.symbols.isdisjoint(mapping):
            return expr
        return rewrite(expr, mapping, memo, leaf if reductions else None)

    if not mapping and not reductions:
        return statement
    if isinstance(statement, Store):
        index = tuple(dims.substitute(i, mapping, moved if dims.has_values(i) else None) for i in statement.index)
        return Store(statement.buffer, index, moved(statement.value), statement.scan)
    if isinstance(statement, Reduce):
        name = reductions[statement.name] if reductions else statement.name
        return Reduce(name, statement.kind, moved(statement.value), statement.dtype)
    return Check(moved(statement.condition), statement.message)


def extents(ranges: Iterable[Dim]) -> tuple[Dim, ...]:
    return tuple(dims.as_symbol(r).extent for r in ranges)  # type: ignore[misc]


def count(ranges: Iterable[Dim]) -> Dim:
    """How many iterations the ranges make together."""
    return dims.product(extents(ranges))
