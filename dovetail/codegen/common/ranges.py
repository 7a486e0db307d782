"""Simplify a group's ranges before code is made of them.

before:  outer i<8, j<768, k<1   Store(y[i, j, k], exp(x[i, j, k]))     contiguous
after:   outer m<6144            Store(y[m], exp(x[m]))                 flat addresses

Every index becomes one flat address; ranges of extent 1 vanish; ranges under a // or % by a
divisor of their extent are split in two; adjacent ranges merge where every use allows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Expr, Group, Index, Load, Loop, Reduce, Statement, Store, rewrite
from dovetail.ir.ranges import extent


def simplify(group: Group) -> Group:
    """An equivalent group whose buffers are all one-dimensional with stride 1."""
    group = _Rewriter({}, flatten=True).group(_own_ranges(group))
    group = _drop_single(group)
    group = _split_divided(group)
    return _merge(group)


def _own_ranges(group: Group) -> Group:
    """Give every loop inner ranges of its own, so that they can be changed one by one."""
    loops = []
    for k, loop in enumerate(group.loops):
        fresh = tuple(dims.symbol(f"{r}@{k}", 0, extent(r)) for r in loop.inner)
        rename = _Rewriter({dims.as_symbol(r): f for r, f in zip(loop.inner, fresh, strict=True)})
        loops.append(Loop(fresh, tuple(map(rename.statement, loop.body))))
    return replace(group, loops=tuple(loops))


def used_dims(group: Group) -> dict[Dim, None]:
    """Every index expression in the group, in order."""
    found: dict[Dim, None] = {}
    for loop in group.loops:
        for statement in loop.body:
            if isinstance(statement, Store):
                found |= dict.fromkeys(statement.index)
            for node in nodes(statement_roots(statement)):
                if isinstance(node, Load):
                    found |= dict.fromkeys(node.index)
                elif isinstance(node, Index):
                    found[node.dim] = None
    return found


class _Rewriter:
    """Substitutes range symbols everywhere; with `flatten`, also applies strides and offsets."""

    def __init__(self, mapping: dict[Symbol, Dim], flatten: bool = False) -> None:
        self.mapping, self.flatten = mapping, flatten
        self.memo: dict[Expr, Expr] = {}
        self.flat: dict[Buffer, Buffer] = {}

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self.flat:
            size = buffer.numel
            self.flat[buffer] = replace(buffer, sizes=(size,), strides=(1,), offset=0)
        return self.flat[buffer]

    def address(self, buffer: Buffer, index: tuple[Dim, ...]) -> Dim:
        total: Dim = buffer.offset if buffer.kind != "local" else 0
        for place, stride in zip(index, buffer.strides, strict=True):
            total = total + place * stride
        return total

    def load(self, node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        return Load(self.buffer(node.buffer), (self.address(node.buffer, node.index),), node.mask)

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self.mapping, self.memo, self.load if self.flatten else None)

    def dim(self, dim: Dim) -> Dim:
        return dims.substitute(dim, self.mapping, self.expr if isinstance(dim, dims.Poly) else None)

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Reduce):
            return replace(statement, value=self.expr(statement.value))
        if isinstance(statement, Check):
            return replace(statement, condition=self.expr(statement.condition))
        index = tuple(map(self.dim, statement.index))
        buffer = statement.buffer
        if self.flatten:
            buffer, index = self.buffer(buffer), (self.address(buffer, index),)
        return replace(statement, buffer=buffer, index=index, value=self.expr(statement.value))

    def group(self, group: Group) -> Group:
        loops = tuple(Loop(loop.inner, tuple(map(self.statement, loop.body))) for loop in group.loops)
        local = tuple(map(self.buffer, group.locals)) if self.flatten else group.locals
        return replace(group, loops=loops, locals=local)


def _replace_ranges(ranges: Iterable[Dim], by: dict[Symbol, tuple[Dim, ...]]) -> tuple[Dim, ...]:
    result: list[Dim] = []
    for r in ranges:
        result.extend(by.get(dims.as_symbol(r), (r,)))
    return tuple(result)


def _with_ranges(group: Group, mapping: dict[Symbol, Dim], by: dict[Symbol, tuple[Dim, ...]]) -> Group:
    """Substitute `mapping` and replace each range in `by` with its new ranges."""
    group = _Rewriter(mapping).group(group) if mapping else group
    loops = tuple(replace(loop, inner=_replace_ranges(loop.inner, by)) for loop in group.loops)
    return replace(group, outer=_replace_ranges(group.outer, by), loops=loops)


def _drop_single(group: Group) -> Group:
    every = [*group.outer, *(r for loop in group.loops for r in loop.inner)]
    single = [dims.as_symbol(r) for r in every if extent(r) == 1]
    return _with_ranges(group, dict.fromkeys(single, 0), dict.fromkeys(single, ()))


# ---------------------------------------------------------------- splitting


def _split_divided(group: Group) -> Group:
    """Split ranges until no // or % of a range by a divisor of its extent is left."""
    fresh = count()
    for _ in range(8):
        plan = _split_plan(group)
        if not plan:
            return group
        mapping: dict[Symbol, Dim] = {}
        by: dict[Symbol, tuple[Dim, ...]] = {}
        for symbol, divisor in plan.items():
            assert isinstance(symbol.extent, int)
            k = next(fresh)
            high = dims.symbol(f"{symbol.name}.h{k}", 0, symbol.extent // divisor)
            low = dims.symbol(f"{symbol.name}.l{k}", 0, divisor)
            mapping[symbol], by[symbol] = high * divisor + low, (high, low)
        group = _with_ranges(group, mapping, by)
    return group


def _split_plan(group: Group) -> dict[Symbol, int]:
    plan: dict[Symbol, int] = {}
    for dim in used_dims(group):
        for atom in _divisions(dim):
            if not isinstance(atom.right, int):
                continue
            for symbol in sorted(dims.symbols(atom.left)):
                size = symbol.extent
                if not isinstance(size, int) or dims.coefficient(atom.left, symbol) != 1:
                    continue
                if 1 < atom.right < size and size % atom.right == 0:
                    plan[symbol] = max(plan.get(symbol, 0), atom.right)
    return plan


def _divisions(dim: Dim) -> Iterable[dims.Binary]:
    if isinstance(dim, int):
        return
    for monomial, _ in dim.terms:
        for atom in monomial:
            if isinstance(atom, dims.Binary):
                if isinstance(atom, (dims.FloorDiv, dims.Mod)):
                    yield atom
                yield from _divisions(atom.left)
                yield from _divisions(atom.right)


# ---------------------------------------------------------------- merging


def _merge(group: Group) -> Group:
    group = replace(group, outer=_by_stride(group))
    changed = True
    while changed:
        changed = False
        uses = used_dims(group)
        for ranges in (group.outer, *(loop.inner for loop in group.loops)):
            pair = next((p for p in zip(ranges, ranges[1:], strict=False) if _mergeable(*p, uses)), None)
            if pair is not None:
                group = _merge_pair(group, *pair)
                changed = True
                break
    return group


def _by_stride(group: Group) -> tuple[Dim, ...]:
    """Outer ranges, largest stride of the last store first, where strides are comparable."""
    stores = [s for s in group.statements() if isinstance(s, Store) and s.buffer.kind != "local"]
    if not stores:
        return group.outer
    strides = [dims.coefficient(stores[-1].index[0], dims.as_symbol(r)) for r in group.outer]
    if any(s is None for s in strides):
        return group.outer
    ordered: list[tuple[Dim, Dim]] = []
    for stride, r in zip(strides, group.outer, strict=True):
        assert stride is not None
        at = len(ordered)
        while at and stride != ordered[at - 1][0] and dims.known_nonnegative(stride - ordered[at - 1][0]):
            at -= 1
        ordered.insert(at, (stride, r))
    return tuple(r for _, r in ordered)


def _mergeable(a: Dim, b: Dim, uses: Iterable[Dim]) -> bool:
    """Does every index depend on (a, b) through a*extent(b) + b alone?"""
    x, y, inner = dims.as_symbol(a), dims.as_symbol(b), extent(b)
    pair = {x, y}
    return all(_merges(dim, x, y, inner) for dim in uses if dims.symbols(dim) & pair)


def _merges(dim: Dim, x: Symbol, y: Symbol, inner: Dim) -> bool:
    if not dims.symbols(dim) & {x, y}:
        return True
    assert isinstance(dim, dims.Poly)
    plain: Dim = 0
    for monomial, coefficient in dim.terms:
        within = [a for a in monomial if not isinstance(a, Symbol) and {x, y} & dims.symbols(dims.of_atom(a))]
        if not all(
            isinstance(a, dims.Binary) and _merges(a.left, x, y, inner) and _merges(a.right, x, y, inner)
            for a in within
        ):
            return False
        if {x, y} & set(monomial):
            if within:
                return False
            plain = plain + dims.product(map(dims.of_atom, monomial)) * coefficient
    high, low = dims.coefficient(plain, x), dims.coefficient(plain, y)
    return high is not None and low is not None and high == low * inner


def _merge_pair(group: Group, a: Dim, b: Dim) -> Group:
    x, y = dims.as_symbol(a), dims.as_symbol(b)
    merged = dims.symbol(f"{x.name}.{y.name}", 0, extent(a) * extent(b))
    return _with_ranges(group, {x: 0, y: merged}, {x: (), y: (merged,)})
