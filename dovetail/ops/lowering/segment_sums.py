"""Sums over elements whose rows are known only at run time: what adds to a tensor at indices.

    keys[k] = the row that element k belongs to;  sorted, order = sort(keys)
    first[v] = how many of sorted are less than v, found by halves
    out[v, c] = sum over k in first[v] .. first[v + 1] of element[order[k], c]

The elements of a row are a run of the sorted order, in the order in which they were given: sums are the same in each
call, which they are not where threads add to memory as they come. A run may be long, as that of a word which pads
sentences. So each whole block of elements that belong to one row is summed by a group of its own, as is each whole
block of such blocks, until there are few; another one joins the blocks of a run. A row adds what is in front of its
blocks and behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from dovetail.ir import dims, dimvalues
from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Expr, Load, Local, Loop, Reduce, Store
from dovetail.ir.ranges import new_range
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const, where
from dovetail.ops.lowering.emit import Emitter, nested, ranges
from dovetail.ops.lowering.registry import opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

aten = torch.ops.aten

#: Sorting pays where a row is at least so long, or where there are not many more rows than elements.
ROW, ROWS_AN_ELEMENT = 32, 4
#: So few elements are sorted by comparing each with all: a sort of PyTorch's takes 20 us on an H200.
COMPARED = 4096
#: Elements of a block, a power of two, and when there are few.
BLOCK, FEW = 32, 64


@dataclass(frozen=True, slots=True)
class Elements:
    """Number k of `count` has a row, an int64, and a `value(k, place, mask)` at each place of that row.

    A place is an index of the result, of which the row says the `axes`. A row that is not there is nobody's.
    """

    count: Dim
    axes: tuple[int, ...]
    row: Callable[[Dim], Expr]
    value: Callable[[Dim, Indices, Expr | None], Expr]


def flat(place: Sequence[Expr], sizes: Sequence[Dim]) -> Expr:
    """The number of a place, counted row by row."""
    total = const(0, torch.int64)
    for digit, size in zip(place, sizes, strict=True):
        total = build.add(build.mul(total, build.index(size)), digit)
    return total


def unflat(number: Dim, sizes: Sequence[Dim]) -> Indices:
    """The place of a number."""
    digits: list[Dim] = []
    for size in reversed(sizes[1:]):
        digits.append(dims.mod(number, size))
        number = dims.floordiv(number, size)
    return (number, *reversed(digits))[: len(sizes)]


def sums(emit: Emitter, out: Spec, elements: Elements) -> Value:
    """For each row the sum of its elements."""
    return _Runs(emit, out, elements).sums()


def pays(out: Spec, elements: Elements) -> bool:
    """Is sorting faster than a library's kernel? On a GPU, for rows that memory likes."""
    if not traits(out.device).sorts_to_add or out.empty or not 0 < dimvalues.typical(elements.count) < 1 << 31:
        return False
    last = max(range(len(out.sizes)), key=lambda d: (-dimvalues.typical(out.strides[d]), d))
    row = math.prod(dimvalues.typical(n) for d, n in enumerate(out.sizes) if d not in elements.axes)
    rows = math.prod(dimvalues.typical(out.sizes[d]) for d in elements.axes)
    many = rows <= ROWS_AN_ELEMENT * dimvalues.typical(elements.count)
    return last not in elements.axes and row >= ROW or row == 1 and many


#: The value of number k of a level, at a place of the result: an element, or what a block comes to.
Level = Callable[[Expr, Indices, Expr], Expr]


class _Runs:
    def __init__(self, emit: Emitter, out: Spec, elements: Elements) -> None:
        self.emit, self.out, self.elements = emit, out, elements
        self.sizes = [out.sizes[a] for a in elements.axes]
        self.rows = dims.product(self.sizes)
        self.columns = [d for d in range(len(out.sizes)) if d not in elements.axes]
        self.dtype = opmath(out.dtype) if out.dtype in build.FLOATS else torch.int64
        self.key, self.bias = _key(self.rows)
        self.sorted, self.order, self.first = self.sort()

    def sums(self) -> Value:
        place = ranges(self.out.sizes, "i")
        row = flat([build.index(place[a]) for a in self.elements.axes], self.sizes)
        begin, end = self.run(dims.value(row, self.rows), None)
        if self.few(0):
            loop, total = self.all(0, self.element, begin, end, place)
        else:
            whole = self.joined()
            loop, total, head, tail = self.outside(0, self.element, begin, end, place)
            total = build.add(total, whole(_number(head), place, build.lt(head, tail)))
        return self.store(self.out, place, [loop], total)

    def run(self, row: Dim, mask: Expr | None) -> tuple[Expr, Expr]:
        """Where a row's elements begin and end."""
        begin, end = (build.cast(Load(self.first, (row + k,), mask), torch.int64) for k in (0, 1))
        return begin, end

    # ------------------------------------------------------------ the order

    def sort(self) -> tuple[Buffer, Buffer, Buffer]:
        """The sorted rows, which element each is of, and how many come before each row."""

        def key(place: Indices) -> Expr:
            row = self.elements.row(place[0])
            inside = build.and_(build.ge(row, const(0, torch.int64)), build.lt(row, build.index(self.rows)))
            return build.shift_by(where(inside, row, build.index(self.rows)), -self.bias)

        emit, count = self.emit, self.elements.count
        keys = emit.pointwise(self.vector(self.key, count), key)
        if isinstance(count, int) and count <= COMPARED:
            found, order = self.compared(emit.held(keys), count)
        else:
            found, order = emit.buffer(self.vector(self.key, count)), emit.buffer(self.vector(torch.int64, count))
            emit.library(aten.sort.stable, (emit.reference(keys),), {"stable": True}, (found, order))
        first = emit.pointwise(self.vector(torch.int32, self.rows + 1), lambda place: self.before(found, place[0]))
        return found, order, emit.memory(first)

    def compared(self, keys: Value, count: int) -> tuple[Buffer, Buffer]:
        """The same by comparing each with all: so many come before it; at each place is the one of that number."""
        pairs = Spec(torch.int32, self.out.device, (count, count), (count, 1))

        def comes_before(pair: Indices) -> Expr:
            one, other = keys.at(pair[:1]), keys.at(pair[1:])
            earlier = build.and_(build.eq(other, one), build.lt(build.index(pair[1]), build.index(pair[0])))
            return build.cast(build.or_(build.lt(other, one), earlier), torch.int32)

        ranks = self.emit.reduce(self.vector(torch.int32, count), pairs, [1], "sum", comes_before, torch.int32)

        def put(value: Callable[[Dim], Expr], dtype: torch.dtype) -> Buffer:
            def at(pair: Indices) -> Expr:
                here = build.eq(build.cast(ranks.at(pair[1:]), torch.int64), build.index(pair[0]))
                return where(here, build.cast(value(pair[1]), added), const(0, added))

            added = torch.int64 if dtype is torch.int64 else torch.int32
            return self.emit.memory(self.emit.reduce(self.vector(dtype, count), pairs, [1], "sum", at, added))

        return put(lambda k: keys.at((k,)), self.key), put(build.index, torch.int32)

    def before(self, found: Buffer, row: Dim) -> Expr:
        """How many sorted keys are less than a row's, by halves."""
        count, zero = self.elements.count, const(0, torch.int64)
        total, key = zero, build.shift_by(build.index(row), -self.bias)
        bits = count.bit_length() if isinstance(count, int) else 31
        for bit in reversed(range(bits)):
            more = build.add(total, const(1 << bit, torch.int64))
            exists = build.le(more, build.index(count))
            last = dims.value(where(exists, build.sub(more, const(1, torch.int64)), zero), count)
            less = build.lt(build.cast(Load(found, (last,)), torch.int64), key)
            total = where(build.and_(exists, less), more, total)
        return total

    def vector(self, dtype: torch.dtype, size: Dim) -> Spec:
        """Of `size` elements on the result's device."""
        return Spec(dtype, self.out.device, (size,), (1,))

    # ------------------------------------------------------------ sums

    def count(self, level: int) -> Dim:
        """Blocks of a level that are full."""
        return dims.floordiv(self.elements.count, BLOCK**level)

    def few(self, level: int) -> bool:
        """Are they so few that a row need not be summed block by block?"""
        return dimvalues.typical(self.count(level)) <= FEW

    def element(self, number: Expr, place: Indices, mask: Expr) -> Expr:
        """The element at a place of the sorted order."""
        count = self.elements.count
        at = dims.value(Load(self.order, (dims.value(number, count),), mask), count)
        return self.elements.value(at, place, mask)

    def all(self, number: int, level: Level, begin: Expr, end: Expr, place: Indices) -> tuple[Loop, Expr]:
        """The sum from `begin` to `end`, which count what the level has."""
        return self.loop(
            f"s{number}_", self.count(number), build.sub(end, begin),
            lambda k, mask: level(build.add(begin, k), place, mask),
        )  # fmt: skip

    def outside(
        self, number: int, level: Level, begin: Expr, end: Expr, place: Indices
    ) -> tuple[Loop, Expr, Expr, Expr]:
        """The sum of what is in front of whole blocks and behind them, and where these begin and end."""
        head = build.minimum(_whole(build.shift_by(begin, BLOCK - 1)), end)
        tail = build.maximum(_whole(end), head)
        ahead, gap = build.sub(head, begin), build.sub(tail, head)

        def value(k: Expr, mask: Expr) -> Expr:
            skipped = where(build.lt(k, ahead), const(0, torch.int64), gap)
            return level(build.add(build.add(begin, skipped), k), place, mask)

        length = build.sub(build.sub(end, begin), gap)
        return *self.loop(f"s{number}_", 2 * BLOCK - 2, length, value), head, tail

    def loop(
        self, name: str, longest: Dim, length: Expr, value: Callable[[Expr, Expr], Expr]
    ) -> tuple[Loop, Expr]:
        """The sum of value(k, k < length), of `longest` at most."""
        k, name = new_range("k", longest), f"{name}{self.emit.groups}"
        mask = build.lt(build.index(k), length)
        summed = where(mask, build.cast(value(build.index(k), mask), self.dtype), const(0, self.dtype))
        return Loop((k,), (Reduce(name, "sum", summed, self.dtype),)), Local(name, self.dtype)

    def store(self, spec: Spec, place: Indices, loops: list[Loop], total: Expr) -> Value:
        """A value of its own for what the loops add up."""
        made = self.emit.new(spec)
        store = Store(made, place, build.cast(total, spec.dtype))
        self.emit.group(nested(place, spec.strides), (*loops, Loop((), (store,))))
        return self.emit.stored(made)

    # ------------------------------------------------------------ blocks

    def blocks(self, number: int, below: Level) -> Level:
        """The sum of each block whose elements belong to one row; of others nothing."""

        def sums(block: Dim, place: Indices) -> tuple[list[Loop], Expr]:
            length = where(self.alike(number, block), const(BLOCK, torch.int64), const(0, torch.int64))
            start = build.index(block * BLOCK)
            loop, total = self.loop("s", BLOCK, length, lambda k, mask: below(build.add(start, k), place, mask))
            return [loop], total

        return self.level(number, sums)

    def joined(self) -> Level:
        """For the first block of a run the sum of all its blocks."""
        levels = [self.blocks(1, self.element)]
        while not self.few(len(levels)):
            levels.append(self.blocks(len(levels) + 1, levels[-1]))

        def sums(block: Dim, place: Indices) -> tuple[list[Loop], Expr]:
            alike, here = self.alike(1, block), build.index(block)
            key = build.cast(Load(self.sorted, (block * BLOCK,)), torch.int64)
            first, last = self.run(dims.value(build.shift_by(key, self.bias), self.rows), alike)
            leads = build.and_(alike, build.eq(_number(build.shift_by(first, BLOCK - 1)), here))
            begin, end = here, where(leads, _number(last), here)
            loops: list[Loop] = []
            total: Expr = const(0, self.dtype)
            for number, level in enumerate(levels[:-1], 1):
                loop, found, head, tail = self.outside(number, level, begin, end, place)
                loops, total = [*loops, loop], build.add(total, found)
                begin, end = _number(head), _number(tail)
            loop, found = self.all(len(levels), levels[-1], begin, end, place)
            return [*loops, loop], build.add(total, found)

        return self.level(1, sums)

    def level(self, number: int, sums: Callable[[Dim, Indices], tuple[list[Loop], Expr]]) -> Level:
        """What each block of the level comes to, in memory."""
        count = self.count(number)
        sizes = (count, *(self.out.sizes[d] for d in self.columns))
        index = ranges(sizes, "i")
        place = tuple(index[1 + self.columns.index(d)] if d in self.columns else 0 for d in range(len(self.out.sizes)))
        spec = Spec(self.dtype, self.out.device, sizes, contiguous_strides(sizes))
        found = self.store(spec, index, *sums(index[0], place))

        def value(block: Expr, place: Indices, mask: Expr) -> Expr:
            return found.load((dims.value(block, count), *(place[d] for d in self.columns)), mask)

        return value

    def alike(self, number: int, block: Dim) -> Expr:
        """Do the block's elements belong to one row?"""
        size = BLOCK**number
        low, high = (Load(self.sorted, (block * size + k,)) for k in (0, size - 1))
        nobodys = build.cast(build.shift_by(build.index(self.rows), -self.bias), self.key)
        return build.and_(build.eq(low, high), build.ne(low, nobodys))


def _whole(place: Expr) -> Expr:
    """The last end of a block that is not past the place."""
    return build.and_(place, const(-BLOCK, torch.int64))


def _number(place: Expr) -> Expr:
    """How many blocks are in front of it."""
    return build.shr(place, const(BLOCK.bit_length() - 1, torch.int64))


def _key(rows: Dim) -> tuple[torch.dtype, int]:
    """A short type for row numbers, that of no row included, and what 0 is then: sorting goes digit by digit."""
    if isinstance(rows, int) and rows < 1 << 16:
        return torch.int16, 1 << 15
    return (torch.int32, 0) if isinstance(rows, int) and rows < (1 << 31) - 1 else (torch.int64, 0)
