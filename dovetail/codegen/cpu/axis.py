"""Choose the range whose consecutive indices share a vector, and the number of lanes.

Two candidates: one outer range (every statement then works on several outer indices at once:
pointwise code, column reductions), or one inner range of each loop (row reductions). The one
whose accesses cost least wins; adjacent addresses are cheap, scattered ones are not.
"""

from __future__ import annotations

import math

from dovetail.codegen.cpu import vecmath
from dovetail.codegen.cpu.target import Processor
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims, dimvalues
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Expr, Group, Load, Loop, Op, Reduce, Statement, Store
from dovetail.ir.ranges import extent
from dovetail.ir.records import dataclass

_SCATTERED = {"load": 12.0, "store": 24.0}
#: Folding the lanes of an accumulator into half of them, in vector instructions. Comparisons look for NaN too.
_HALVING = {"max": 4.0, "min": 4.0, "argmax": 10.0, "argmin": 10.0}


@dataclass(frozen=True)
class VectorPlan:
    """`outer` is the vectorised outer range, or `inner[k]` that of loop k; None: scalar code.

    `lanes` is the lane count of the outer range, `inner_lanes[k]` that of loop k.
    """

    outer: Symbol | None
    lanes: int
    inner: tuple[Symbol | None, ...]
    inner_lanes: tuple[int, ...]
    tile: Symbol | None = None  # the outer range to run fastest, one vector at a time


def choose(group: Group, target: Processor) -> VectorPlan:
    """The cheapest legal plan."""
    none = tuple(None for _ in group.loops)
    ones = tuple(1 for _ in group.loops)
    lanes = base_lanes(group, target)
    inner = tuple(_best_inner(loop, lanes) for loop in group.loops)
    inner_cost = sum(_loop_cost(loop, axis, lanes, True) for loop, axis in zip(group.loops, inner, strict=True))
    best, best_cost = None, inner_cost
    for r in group.outer if _can_interleave(group) else ():
        axis = dims.as_symbol(r)
        if axis.extent == 0:
            continue
        cost = sum(_loop_cost(loop, axis, lanes, False) for loop in group.loops)
        if cost < best_cost or (cost == best_cost and best is None):
            best, best_cost = axis, cost
    if best is not None:
        wide = _narrow(best, lanes * _multiple(group.loops, lanes, 8))
        return VectorPlan(best, wide, none, ones, _tile(group, best))
    widths = tuple(
        1 if axis is None else _narrow(axis, lanes * _multiple((loop,), lanes))
        for loop, axis in zip(group.loops, inner, strict=True)
    )
    return VectorPlan(None, 1, inner, widths)


def _tile(group: Group, axis: Symbol) -> Symbol | None:
    """The range along which accesses that scatter along `axis` are adjacent.

    Running it fastest, one vector of `axis` at a time, uses every cache line while it is at hand.
    """
    if any(loop.inner for loop in group.loops):
        return None
    scattered = [a for _, a, _ in accesses(group.loops[0].body) if dims.coefficient(a, axis) not in (0, 1, None)]
    for r in group.outer:
        other = dims.as_symbol(r)
        if other is not axis and any(dims.coefficient(a, other) == 1 for a in scattered):
            return other
    return None


def base_lanes(group: Group, target: Processor) -> int:
    """Lanes of one vector register of the widest common element, 8-byte ones apart if mixed."""
    sizes = set()
    for node in nodes([r for s in group.statements() for r in statement_roots(s)]):
        kind = type_of(node.dtype)
        if isinstance(node, (Load, Op)) and kind.kind != "bool":
            sizes.add(4 if kind.kind == "half" else kind.size)
    sizes.update(type_of(s.buffer.dtype).size for s in group.statements() if isinstance(s, Store))
    width = 4 if 4 in sizes else 8 if 8 in sizes else 4 if 2 in sizes else 2
    return target.vector_bytes // width


def _multiple(loops: tuple[Loop, ...], lanes: int, most: int = 4) -> int:
    """Registers to a vector: several where there is little work to overlap otherwise.

    `most`: columns of a matrix are read in pieces as long as a vector, which memory gives faster if they are longer.
    """
    if not any(isinstance(s, Reduce) for loop in loops for s in loop.body if loop.inner):
        return 1
    roots = [r for loop in loops if loop.inner for s in loop.body for r in statement_roots(s)]
    found = [n for n in nodes(roots) if isinstance(n, Op)]
    heavy = sum(vecmath.has(n.name) for n in found)
    wide = any(type_of(n.dtype).bits == 64 for n in nodes(roots) if not isinstance(n, Op) or n.name != "cast")
    arguments = any(isinstance(s, Reduce) and s.kind.startswith("arg") for loop in loops for s in loop.body)
    if heavy or arguments:
        return 1
    return 2 if len(found) > 6 or (wide and lanes * 8 > 64) else most


def _narrow(axis: Symbol, lanes: int) -> int:
    """No more lanes than the range has indices, to a power of two."""
    while lanes > 1 and isinstance(axis.extent, int) and axis.extent <= lanes // 2:
        lanes //= 2
    return lanes


def accesses(statements: tuple[Statement, ...]) -> list[tuple[str, Dim, Expr | Store]]:
    """Every distinct load and store, with its flat address."""
    found: list[tuple[str, Dim, Expr | Store]] = []
    roots = [r for s in statements for r in statement_roots(s)]
    found += [("load", n.index[0], n) for n in nodes(roots) if isinstance(n, Load)]
    found += [("store", s.index[0], s) for s in statements if isinstance(s, Store)]
    return found


def _trips(loop: Loop) -> float:
    total = 1.0
    for r in loop.inner:
        size = extent(r)
        total *= dimvalues.typical(size)
    return total


def _loop_cost(loop: Loop, axis: Symbol | None, lanes: int, inner: bool) -> float:
    """Vector instructions per lane, weighted by how often they run, for one outer index."""
    if axis is None:
        count = len(accesses(loop.body)) + 1.0
        return count * max(_trips(loop), 0.0) if loop.inner else count
    size = dimvalues.typical(axis.extent)  # type: ignore[arg-type]
    lanes = max(min(lanes, size), 1)
    efficiency = size / (-(-size // lanes) * lanes) if size else 1.0
    cost = 1.0
    for kind, address, _ in accesses(loop.body):
        step = dims.coefficient(address, axis)
        cost += 1.0 if step in (0, 1) else _SCATTERED[kind]
    cost = cost * _trips(loop) / (lanes * efficiency)
    folds = sum(_HALVING.get(s.kind, 2.0) for s in loop.body if isinstance(s, Reduce))
    return cost + (folds * math.log2(lanes) if inner else 0.0)


def _best_inner(loop: Loop, lanes: int) -> Symbol | None:
    if not loop.inner or not vectorizable(loop):
        return None
    argument = any(isinstance(s, Reduce) and s.kind.startswith("arg") for s in loop.body)
    candidates = [dims.as_symbol(r) for r in (loop.inner[-1:] if argument else loop.inner[::-1]) if extent(r) != 0]
    places = [s.index[0] for s in loop.body if isinstance(s, Store)]  # which must move with it
    legal = [c for c in candidates if all(dims.coefficient(place, c) != 0 for place in places)]
    return min(legal, key=lambda c: _loop_cost(loop, c, lanes, True), default=None)


def vectorizable(loop: Loop) -> bool:
    """May the loop's iterations run side by side? Not if one may read what another wrote."""
    written = {s.buffer.name: s.index for s in loop.body if isinstance(s, Store)}
    for kind, address, item in accesses(loop.body):
        if kind == "load" and item.buffer.name in written and (address,) != written[item.buffer.name]:  # type: ignore[union-attr]
            return False
    return True


def _can_interleave(group: Group) -> bool:
    """Outer vectorisation keeps local buffers side by side: their indices must be uniform."""
    outer = {dims.as_symbol(r) for r in group.outer}
    return not any(
        item.buffer.kind == "local" and dims.symbols(address) & outer  # type: ignore[union-attr]
        for _, address, item in accesses(tuple(group.statements()))
    )
