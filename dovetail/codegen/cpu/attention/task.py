"""What is done for a block of rows of a head."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.cpu import vecmath
from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.attention.products import Tile
from dovetail.codegen.cpu.attention.seen import BlockView
from dovetail.codegen.cpu.attention.softmax import Softmax, Values
from dovetail.codegen.cpu.attention.tiles import KEYS, ScoreBlock, work_of
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.expressions import Expressions, float_bits
from dovetail.codegen.cpu.target import Processor
from dovetail.ir import dims
from dovetail.ir.attention import Attention, Strides
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const


class RowsTask:
    """Writes `i64 @K.task(ptr ctx, ptr work, i64 task)`."""

    def __init__(
        self,
        attention: Attention,
        out: Strides,
        tile: Tile,
        signature: KernelSignature,
        library: vecmath.Library,
        target: Processor,
    ) -> None:
        self.attention, self.out = attention, out
        self.tile, self.signature = tile, signature
        self.made = KernelFunction("K.task", {"ctx": "ptr", "work": "ptr", "task": "i64"}, target.halves, result="0")
        self.em = Expressions(self.made.b, signature, "contract ", library, target.halves)
        self.w, self.b = self.made.w, self.made.b
        self.zero = self.made.number(0)

    def extent(self, size: Dim) -> Val:
        return self.em.indices.extent(size)

    def factor(self, stride: Dim) -> Val:
        return self.em.indices.factor(stride)

    def written(self) -> KernelFunction:
        """The whole of it."""
        w, a, made = self.w, self.attention, self.made
        self.place()
        self.width, self.value_width = self.extent(a.width), self.extent(a.value_width)
        self.work = work_of(made, made.parameters["work"], self.tile, self.width, self.value_width)
        self.softmax = Softmax(made, self.em, a.scores, self.tile, KEYS, self.work, lambda n: [f"  ret i64 {n}"])
        bits = Val(self.signature.size(float_bits(Const(a.scale, torch.float32))), "i64", 1, 0)
        self.scale = w.convert("bitcast", w.convert("trunc", bits, "i32"), "float")
        query = self.element("query", a.query, self.h, self.i)
        made.call("K.packed", query, self.factor(a.query[2]), self.work.query, self.rows, self.width)
        self.begin()
        self.b.loop(self.zero, self.extent(a.keys), str(KEYS), [], self.block)
        self.finish()
        return made

    def place(self) -> None:
        """Which block of rows of which head the task is. The last ones come first: where some see more, those do."""
        w, a, columns = self.w, self.attention, self.made.number(self.tile.columns)
        more = w.binary("add", self.extent(a.rows), self.made.number(self.tile.columns - 1))
        blocks, task = w.binary("udiv", more, columns), self.made.parameters["task"]
        number = w.binary("sub", w.binary("sub", blocks, self.made.number(1)), w.binary("urem", task, blocks))
        self.head = w.binary("udiv", task, blocks)
        heads = self.extent(a.heads)
        self.batch, self.h = w.binary("udiv", self.head, heads), w.binary("urem", self.head, heads)
        self.group = w.binary("udiv", self.h, self.extent(dims.floordiv(a.heads, a.groups)))
        self.i = w.binary("mul", number, columns)
        self.rows = w.minmax("min", w.binary("sub", self.extent(a.rows), self.i), columns, "int")
        for place, value in zip(a.scores.places[:2], (self.batch, self.h), strict=True):
            self.em.indices.bound[dims.as_symbol(place)] = value

    def pointer(self, name: str) -> Val:
        return Val(self.signature.pointer(name), "ptr", 1, 0)

    def element(self, name: str, strides: Strides, head: Val, row: Val) -> Val:
        """Where a row begins."""
        base = self.pointer(name)
        for place, stride in zip((self.batch, head, row), strides, strict=False):
            base = self.made.at(base, place, self.factor(stride), self.attention.dtype)
        return base

    def begin(self) -> None:
        """Nothing is seen so far."""
        w, lanes, columns = self.w, self.tile.lanes, self.tile.columns
        zero, least = (w.splat(w.number(n, "float"), lanes) for n in (0.0, -math.inf))

        def line(d: Val, _: list[str]) -> list[str]:
            at = self.made.at(self.work.found, d, columns)
            for n in range(0, columns, lanes):
                self.made.store(zero, at, n)
            return []

        self.b.loop(self.zero, self.value_width, "1", [], line)
        for n in range(0, columns, lanes):
            self.made.store(least, self.work.largest, n)
            self.made.store(zero, self.work.total, n)

    # ------------------------------------------------------------ a block of keys

    def block(self, j: Val, _: list[str]) -> list[str]:
        """As far as the mask shows something of it."""
        left = self.w.binary("sub", self.extent(self.attention.keys), j)
        keys = self.w.minmax("min", left, self.made.number(KEYS), "int")
        block, scores = ScoreBlock(self.i, j, self.rows, keys), self.attention.scores
        if isinstance(scores.mask, Const) and scores.mask.value:
            self.multiply(block, self.w.const("true", "i1"))
            return []
        found = BlockView.of(self.em, scores, block)

        def asked(_: Val, names: list[str]) -> list[str]:
            return [v.text for v in self.softmax.asked(block)]

        def seen() -> None:
            unknown = self.w.convert("zext", self.w.invert(found.all), "i64")
            carried = [("i1", "true"), ("i1", found.all.text)]
            names = self.b.once(self.zero, unknown, carried, asked)
            some, every = (Val(name, "i1", 1, self.b.depth) for name in names)
            self.when(some, lambda: self.multiply(block, every))

        self.when(found.some, seen)
        return []

    def when(self, condition: Val, body: Callable[[], None]) -> None:
        def run(_: Val, names: list[str]) -> list[str]:
            body()
            return []

        self.b.once(self.zero, self.w.convert("zext", condition, "i64"), [], run)

    def multiply(self, block: ScoreBlock, every: Val) -> None:
        """Scores, weights, and rows that they belong to. `every`: is all of the block seen?"""
        a, work, made, one = self.attention, self.work, self.made, self.made.number(1)
        place, step = self.plain("key", a.key, block, self.width)
        made.call("K.scores", place, step, one, work.query, work.scores, block.keys, self.width)
        self.softmax.weigh(block, self.scale, every)
        place, step = self.plain("value", a.value, block, self.value_width)
        made.call("K.values", place, one, step, work.scores, work.found, self.value_width, block.keys, work.change)

    def plain(self, name: str, strides: Strides, block: ScoreBlock, width: Val) -> tuple[Val, Val]:
        """Where keys or values lie in float32, and how far from each other."""
        place, step = self.element(name, strides, self.group, block.j), self.factor(strides[2])
        if self.attention.dtype is torch.float32:
            return place, step
        self.made.call("K.widened", place, step, self.work.wide, block.keys, width)
        return self.work.wide, width

    # ------------------------------------------------------------ results

    def finish(self) -> None:
        """Rows are divided by their sums, and laid out."""
        flat = self.w.binary("add", self.w.binary("mul", self.head, self.extent(self.attention.rows)), self.i)
        outs = [self.made.at(self.pointer(name), flat) for name in ("logarithms", "largest")]

        def vector(first: Val, _: Values) -> Values:
            for value, out in zip(self.softmax.finished(first), outs, strict=True):
                self.made.store(value, self.made.at(out, first), mask=self.em.mask)
            return []

        self.softmax.vectors(self.i, self.rows, [], vector)
        out, step, work = self.element("out", self.out, self.h, self.i), self.factor(self.out[2]), self.work
        self.made.call("K.unpacked", work.found, work.change, out, step, self.rows, self.value_width)
