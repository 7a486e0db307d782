"""How a group's ranges become programs and tiles.

    pointwise    x: all outer ranges, flat                        one tile of 1024 elements a program
    windows      x: the last outer range, y: the others, flat, where much is read that is the same along y
    transposes   y and x: the two ranges that accesses are contiguous along; what is left is one index a program
    rows         x: outer ranges; r: inner ones                   the whole row in registers, if it fits (scans do)
    long rows    the same, r in a loop                            (such groups have no local buffers: gpu/split.py)
    columns      x: the last outer range, if tiles fit into it; the others are one index a program
    runs         x: outer ranges that no end of a loop depends on, if enough; r: one by one, to that end (ir/ends.py)

Which of x and r is contiguous in memory decides the tile's proportions.
"""

from __future__ import annotations

from collections import Counter

from dovetail.ir import dims
from dovetail.ir.contiguity import along_columns, steps_by_one
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.ends import end
from dovetail.ir.launch import (
    ENOUGH_PROGRAMS,
    FEW_PROGRAMS,
    FEWER,
    LONGEST_ROW,
    MANY_SUMS,
    NARROW_TILE,
    NARROWEST_TILE,
    WIDE_TILE,
    WINDOW,
    power_of_two,
)
from dovetail.ir.liveness import added_together, nodes, statement_roots
from dovetail.ir.loops import Group, Load, Loop, Store
from dovetail.ir.ranges import extent
from dovetail.ir.records import dataclass

#: Elements of a tile: pointwise code; rows; columns, which are added up tile by tile.
FLAT, TILE, COLUMNS = 1024, 4096, 2048
#: Elements of a tile that reads weights once for its columns, and how many loads are worth one.
WEIGHED, WEIGHTS = 1024, 64
#: What 32 threads share: bytes of the widest tensor, in pointwise code; elements of a row.
BYTES, ELEMENTS = 1024, 512
#: Where more is read of one tensor for each element, a thread has fewer of them.
MANY_LOADS = WINDOW, 2 * WINDOW
#: A transposing tile: bytes along one side at most, elements at least, and the shortest range that is worth one.
LONG_SIDE, SIDE, SHORT_SIDE = 256, 32, 16
#: How much of the tiles of a range may be past its end, for it to be tiled by itself.
WASTE = 0.05
UNKNOWN = 1024  # what a size that is not known now is taken for


@dataclass(frozen=True)
class Axis:
    """Ranges, flattened, the last fastest, of which a tile covers `block` indices. `looped`: tile after tile."""

    name: str
    ranges: tuple[Dim, ...]
    block: int
    looped: bool = False

    @property
    def total(self) -> Dim:
        return dims.product(map(extent, self.ranges))

    @property
    def masked(self) -> bool:
        """May a tile reach past the end?"""
        return self.block > 1 and (not isinstance(self.total, int) or self.total % self.block != 0)


@dataclass(frozen=True)
class TilePlan:
    """`axes` are tiled over programs, `batch` ranges have one index a program.

    `inner[k]` is the axis of loop k's ranges; None where it has none.
    """

    axes: tuple[Axis, ...]
    batch: tuple[Dim, ...]
    inner: tuple[Axis | None, ...]
    warps: int

    @property
    def rank(self) -> int:
        return len(self.axes) + any(a is not None for a in self.inner)

    @property
    def programs(self) -> Dim:
        counts = [-((-axis.total) // axis.block) if isinstance(axis.total, int) else
                  dims.floordiv(axis.total + axis.block - 1, axis.block) for axis in self.axes]  # fmt: skip
        return dims.product([*counts, *map(extent, self.batch)])

    def along(self, axis: Axis, position: int) -> str:
        """The text of numbers from 0 along one side of a tile."""
        shape = ", ".join(":" if k == position else "None" for k in range(self.rank))
        return f"tl.arange(0, {axis.block})" + (f"[{shape}]" if self.rank > 1 else "")

    def tile(self, axis: Axis) -> str:
        """The text of a tile's shape, in a loop along an inner axis."""
        sides = [str(a.block) for a in (*self.axes, axis)]
        return f"({', '.join(sides)}{',' * (len(sides) == 1)})"


def choose(group: Group) -> TilePlan:
    """The plan for a group whose buffers are flat (`ranges.simplify`)."""
    if not any(loop.inner for loop in group.loops):
        return _pointwise(group)
    return _runs(group) if all(end(loop) is not None for loop in group.loops if loop.inner) else _rows(group)


# ---------------------------------------------------------------- no inner ranges


def _pointwise(group: Group) -> TilePlan:
    inner = tuple(None for _ in group.loops)
    if not group.outer:
        return TilePlan((), (), inner, 1)
    pair = _transposed(group)
    if pair is not None:
        y, x = pair
        side = _side(group)
        axes = Axis("y", (y,), side), Axis("x", (x,), side)
        batch = tuple(r for r in group.outer if r is not x and r is not y)
        return TilePlan(axes, batch, inner, min(16, max(4, side * side // 512)))
    flat = FLAT // _read_together(group)
    *others, last = group.outer
    if others and _weighs(group):
        width = next((w for w in (64, 32, 16) if _fill(_size(extent(last)), w)), 32)
        return TilePlan((Axis("y", tuple(others), WEIGHED // width), Axis("x", (last,), width)), (), inner, 4)
    if others and _alone(extent(last)):
        return TilePlan((Axis("x", (last,), flat),), tuple(others), inner, flat // _points(group))
    total = _size(dims.product(map(extent, group.outer)))
    block = max(32, min(flat, power_of_two(total)))
    return TilePlan((Axis("x", group.outer, block),), (), inner, max(1, block // _points(group)))


def _weighs(group: Group) -> bool:
    """Is very much read for each element, half of it the same for all indices but the last range's? Once for a tile of
    them then: 7x7 weights of 16x96x56x56 took 170 us on an H200, and 89 so; 3x3 and 5x5 ones gain nothing."""
    column, loads = dims.as_symbol(group.outer[-1]), _loads(group.loops)
    alike = sum(dims.symbols(load.index[0]) == {column} for load in loads)
    return 2 * alike >= len(loads) - 1 > WEIGHTS and any(steps_by_one(i, group.outer[-1]) for i in _stores(group.loops))


def _points(group: Group) -> int:
    """Elements that 32 threads share. Of half types more: these take longer to compute than to move."""
    stored = (s.buffer for s in group.statements() if isinstance(s, Store))
    buffers = [*(load.buffer for load in _loads(group.loops)), *stored]
    return BYTES // min(4, max([2, *(b.dtype.itemsize for b in buffers)])) // _read_together(group)


def _alone(size: Dim) -> bool:
    """Is a range best tiled by itself? Where rows begin anywhere, a flat index tells nothing of memory, at a price."""
    return isinstance(size, int) and size % 16 != 0 and _fill(size, FLAT)


def _fill(size: int, block: int) -> bool:
    """Do tiles have few places past the end of a range?"""
    return 1 - size / (-(-size // block) * block) <= WASTE


def _side(group: Group) -> int:
    """Rows of a tile are as long as memory likes them, where enough tiles are left."""
    size = max((load.buffer.dtype.itemsize for load in _loads(group.loops)), default=4)
    side, elements = LONG_SIDE // max(size, 2), _size(dims.product(map(extent, group.outer)))
    while side > SIDE and elements < ENOUGH_PROGRAMS * side * side:
        side //= 2
    return side


def _transposed(group: Group) -> tuple[Dim, Dim] | None:
    """Two ranges along which different accesses are contiguous: of another one, and of the last store."""
    x = next((r for r in reversed(group.outer) if any(steps_by_one(i, r) for i in _stores(group.loops))), None)
    if x is None or _size(extent(x)) < SHORT_SIDE:
        return None
    along = dims.as_symbol(x)
    scattered = [i for i in _addresses(group.loops) if along in dims.symbols(i) and not steps_by_one(i, x)]
    for y in group.outer:
        if y is not x and _size(extent(y)) >= SHORT_SIDE and any(steps_by_one(i, y) for i in scattered):
            return y, x
    return None


# ---------------------------------------------------------------- rows


def _rows(group: Group) -> TilePlan:
    longest = max(_size(dims.product(map(extent, loop.inner))) for loop in group.loops)
    rows = _size(dims.product(map(extent, group.outer)))
    accesses = ((address, loop.inner) for loop in group.loops if loop.inner for address in _addresses((loop,)))
    across = along_columns(accesses, group.outer, UNKNOWN)
    wide = min(power_of_two(rows), WIDE_TILE) if across else 1
    whole = _whole(group, longest, wide, across)
    if whole:
        block, wide = power_of_two(longest), max(1, min(wide, LONGEST_ROW // power_of_two(longest)))
    else:
        block = max(16, min((COLUMNS if across else TILE) // wide, power_of_two(longest)))
    wide = max(wide if across else 1, min(FLAT // block, power_of_two(rows)))  # short rows are many to a program
    least, enough = (NARROWEST_TILE, FEW_PROGRAMS) if across else (1, ENOUGH_PROGRAMS)
    while wide > least and rows // wide < enough:
        wide //= 2
    inner = []
    for loop in group.loops:
        total = dims.product(map(extent, loop.inner))
        own = power_of_two(_size(total)) if whole else min(block, power_of_two(_size(total)))
        inner.append(Axis("r", loop.inner, own, looped=not whole) if loop.inner else None)
    batch = group.outer[:-1] if across and _by_themselves(group, wide) else ()
    axes = (Axis("x", group.outer[len(batch) :], wide),) if group.outer else ()
    fewer = FEWER if not whole and added_together(group) > MANY_SUMS else 1
    share = ELEMENTS // max(_read_together(group), fewer)
    return TilePlan(axes, batch, tuple(inner), max(1, min(16, wide * block // share)))


def _read_together(group: Group) -> int:
    """How many times fewer elements a thread has that reads windows: registers hold what all of them read."""
    counts = (Counter(load.buffer.name for load in _loads((loop,))) for loop in group.loops)
    most = max((count for found in counts for count in found.values()), default=0)
    return 1 << sum(most > many for many in MANY_LOADS)


def _by_themselves(group: Group, wide: int) -> bool:
    """Is something the same for all columns of a row, so that it is read once for each of its tiles? With rows among
    the columns it is read for each element: means of norms took more than the elements, in half types. Without such,
    that is up to a fourth slower. Tiles of columns must have few places to spare."""
    column, size = dims.as_symbol(group.outer[-1]), extent(group.outer[-1])
    if not isinstance(size, int) or not _fill(size, wide):
        return False
    return any(symbols and column not in symbols for symbols in map(dims.symbols, _addresses(group.loops)))


def _whole(group: Group, longest: int, wide: int, across: bool) -> bool:
    """Does a program hold rows as they are, rather than go through them tile by tile?"""
    if group.locals or any(isinstance(s, Store) and s.scan for s in group.statements()):
        return True
    if not all(isinstance(dims.product(map(extent, loop.inner)), int) for loop in group.loops):
        return False
    again = sum(bool(loop.inner) for loop in group.loops) > 1
    if across and not again and longest * wide > COLUMNS:
        return False
    least = min(wide, _narrow(group)) if again else wide
    return power_of_two(longest) * least <= LONGEST_ROW


def _runs(group: Group) -> TilePlan:
    """Few values each, wherever they lie: one after the other, for a tile of outer indices with one end, or for a small
    one, which waits for the longest run."""
    ends = frozenset().union(*(found.symbols for loop in group.loops if (found := end(loop)) is not None))
    shared = max((k for k, r in enumerate(group.outer, 1) if dims.as_symbol(r) in ends), default=0)
    batch, tiled, most = group.outer[:shared], group.outer[shared:], FLAT
    if _size(dims.product(map(extent, tiled))) < FLAT // 2:
        batch, tiled, most = (), group.outer, FLAT // 4
    block = max(32, min(most, power_of_two(_size(dims.product(map(extent, tiled))))))
    axes = (Axis("x", tiled, block),) if tiled else ()
    inner = (Axis("r", loop.inner, 1, looped=True) if loop.inner else None for loop in group.loops)
    return TilePlan(axes, batch, tuple(inner), max(1, block // _points(group)))


def _narrow(group: Group) -> int:
    """Outer indices that memory still likes to be read in."""
    return NARROW_TILE // min((load.buffer.dtype.itemsize for load in _loads(group.loops)), default=4)


# ---------------------------------------------------------------- accesses


def _stores(loops: tuple[Loop, ...]) -> list[Dim]:
    return [s.index[0] for loop in loops for s in loop.body if isinstance(s, Store) and s.buffer.kind != "local"]


def _loads(loops: tuple[Loop, ...]) -> list[Load]:
    roots = [r for loop in loops for s in loop.body for r in statement_roots(s)]
    return [n for n in nodes(roots) if isinstance(n, Load) and n.buffer.kind != "local"]


def _addresses(loops: tuple[Loop, ...]) -> list[Dim]:
    return [load.index[0] for load in _loads(loops)] + _stores(loops)


def _size(dim: Dim) -> int:
    return dim if isinstance(dim, int) else UNKNOWN


def symbols_of(ranges: tuple[Dim, ...]) -> frozenset[Symbol]:
    return frozenset(map(dims.as_symbol, ranges))
