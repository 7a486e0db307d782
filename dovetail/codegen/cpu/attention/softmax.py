"""A block of scores: which of them are seen, what becomes of them, and their weights.

Rows lie in lanes: what a row needs of all its keys is computed without looking across lanes, and what functions of
places say of a row is computed once for all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.attention.products import Tile
from dovetail.codegen.cpu.attention.tiles import ScoreBlock, Work
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.expressions import Expressions
from dovetail.codegen.cpu.loops import LoopEmitter
from dovetail.codegen.cpu.vecmath import coefficients
from dovetail.codegen.cpu.vecmath.formulas import MAGIC_32, Formulas
from dovetail.ir import dims
from dovetail.ir.attention import Scores
from dovetail.ir.loops import Expr

LOG2E = math.log2(math.e)


Values = list[Val]


class Softmax:
    """Writes into the function `made`. `keys`: how many a block has at most; `failing` as `LoopEmitter` takes it."""

    def __init__(
        self,
        made: KernelFunction,
        em: Expressions,
        scores: Scores,
        tile: Tile,
        keys: int,
        work: Work,
        failing: Callable[[int], list[str]],
    ) -> None:
        self.made, self.em, self.scores = made, em, scores
        self.tile, self.keys, self.work = tile, keys, work
        self.b, self.w = em.b, em.w
        self.formulas = Formulas(self.b, native_scale=False)
        self.loops = LoopEmitter(em, failing)
        self.i, self.j = map(dims.as_symbol, scores.places[2:])

    # ------------------------------------------------------------ loops

    def vectors(self, start: Val, rows: Val, values: Values, body: Callable[[Val, Values], Values]) -> Values:
        """For each vector of rows: where it begins in a line. `values` are carried from one to the next."""
        em, lanes = self.em, self.tile.lanes

        def vector(first: Val, names: list[str]) -> list[str]:
            em.indices.vector, em.indices.lanes = self.i, lanes
            em.indices.bound[self.i] = self.w.binary("add", start, first)
            em.mask = self.made.before(lanes, self.w.binary("sub", rows, first))
            found = body(first, self.renamed(values, names))
            em.indices.vector, em.indices.lanes, em.mask = None, 1, None
            return [v.text for v in found]

        carried = [(v.type, v.text) for v in values]
        end = self.made.number(self.tile.columns)
        names = self.b.loop(self.made.number(0), end, str(lanes), carried, vector, guarded=False)
        self.loops.leave()
        return self.renamed(values, names)

    def each_key(self, block: ScoreBlock, values: Values, body: Callable[[Val, Values], Values]) -> Values:
        """For each key: its number in the block."""

        def key(number: Val, names: list[str]) -> list[str]:
            self.em.indices.bound[self.j] = self.w.binary("add", block.j, number)
            return [v.text for v in body(number, self.renamed(values, names))]

        carried = [(v.type, v.text) for v in values]
        names = self.b.loop(self.made.number(0), block.keys, "1", carried, key, guarded=False)
        return self.renamed(values, names)

    def renamed(self, values: Values, names: list[str]) -> Values:
        return [Val(n, v.element, v.lanes, self.b.depth) for n, v in zip(names, values, strict=True)]

    def check(self, checks: tuple[tuple[Expr, str], ...], first: int) -> None:
        """`first`: the number of the first one's message."""
        for k, (condition, _) in enumerate(checks):
            self.loops.check(self.em.value(condition), first + k)

    def line(self, number: Val, first: Val) -> Val:
        """Where a key's scores with a vector of rows lie."""
        return self.made.at(self.made.at(self.work.scores, number, self.tile.columns), first)

    # ------------------------------------------------------------ what is seen

    @property
    def word(self) -> str:
        """Bits of a vector of rows and a key: as many as lanes, a byte at least."""
        return f"i{max(self.tile.lanes, 8)}"

    def bits(self, number: Val, first: Val) -> Val:
        """Where they lie: those of a vector one after the other."""
        place = self.w.binary("mul", first, self.made.number(self.keys // self.tile.lanes))
        at, shown = self.w.binary("add", place, number), self.work.shown
        return self.b.shared(f"getelementptr {self.word}, ptr {shown.text}, {at.typed}", "ptr", 1, (shown, at))

    def packed(self, lanes: Val) -> Val:
        """One bit a lane."""
        kind = f"i{lanes.lanes}"
        bits = self.b.shared(f"bitcast {lanes.typed} to {kind}", kind, 1, (lanes,))
        return self.w.convert("zext", bits, self.word)

    def unpacked(self, bits: Val) -> Val:
        lanes = self.tile.lanes
        narrow = self.w.convert("trunc", bits, f"i{lanes}")
        return self.b.shared(f"bitcast {narrow.typed} to <{lanes} x i1>", "i1", lanes, (narrow,))

    def asked(self, block: ScoreBlock) -> tuple[Val, Val]:
        """Ask the mask for every place, and keep what it says: is something seen, and is everything?"""
        w = self.w

        def vector(first: Val, values: Values) -> Values:
            exist = self.em.mask
            assert exist is not None

            def key(number: Val, values: Values) -> Values:
                self.check(self.scores.mask_checks, 1 + len(self.scores.checks))
                shown = w.both(w.splat(self.em.value(self.scores.mask), self.tile.lanes), exist)
                word, at = self.packed(shown), self.bits(number, first)
                self.b.line(f"store {word.typed}, ptr {at.text}, align 1")
                filled = w.binary("or", word, self.packed(w.invert(exist)))
                return [w.binary("or", values[0], word), w.binary("and", values[1], filled)]

            return self.each_key(block, values, key)

        nothing, everything = w.const(0, self.word), w.const(-1, self.word)
        some, every = self.vectors(block.i, block.rows, [nothing, everything], vector)
        full = w.const((1 << self.tile.lanes) - 1, self.word)
        filled = w.compare("icmp eq", w.binary("and", every, full), full)
        return w.compare("icmp ne", some, nothing), filled

    # ------------------------------------------------------------ weights

    def weigh(self, block: ScoreBlock, scale: Val, every: Val) -> None:
        """Products become weights, relative to the largest score so far. `every`: is everything seen?"""
        w, made, work = self.w, self.made, self.work

        def vector(first: Val, _: Values) -> Values:
            before = made.load(made.at(work.largest, first), self.tile.lanes)

            def changed(number: Val, values: Values) -> Values:
                score = self.changed(number, first, scale, every)
                made.store(score, self.line(number, first))
                return [w.select(w.compare("fcmp ogt", score, values[0]), score, values[0])]

            (largest,) = self.each_key(block, [before], changed)
            base = self.exponent(self.finite(largest))
            change = self.power(before, base)
            zero = w.splat(w.number(0.0, "float"), self.tile.lanes)

            def weighed(number: Val, values: Values) -> Values:
                weight = self.power(made.load(self.line(number, first), self.tile.lanes), base)
                made.store(weight, self.line(number, first))
                return [w.binary("fadd", values[0], weight)]

            (total,) = self.each_key(block, [zero], weighed)
            old = made.load(made.at(work.total, first), self.tile.lanes)
            made.store(w.intrinsic("fma", old, change, total), made.at(work.total, first))
            made.store(largest, made.at(work.largest, first))
            made.store(change, made.at(work.change, first))
            return []

        self.vectors(block.i, block.rows, [], vector)

    def changed(self, number: Val, first: Val, scale: Val, every: Val) -> Val:
        """What becomes of a score, the least number where it is hidden."""
        w, lanes = self.w, self.tile.lanes
        score = w.binary("fmul", self.made.load(self.line(number, first), lanes), scale)
        self.b.scope.memo[self.scores.score] = score
        self.check(self.scores.checks, 1)
        score = w.splat(self.em.value(self.scores.value), lanes)
        if every.text == "true":
            return score
        at = self.bits(number, first)
        word = self.b.op(f"load {self.word}, ptr {at.text}, align 1", self.word, 1)
        shown = w.binary("or", self.unpacked(word), w.splat(every, lanes))
        return w.select(shown, score, w.number(-math.inf, "float"))

    def finished(self, first: Val) -> tuple[Val, Val]:
        """The logarithm of each row's sum and its largest score, to base 2; `change` becomes what rows are to be
        multiplied with."""
        w, made, lanes = self.w, self.made, self.tile.lanes
        total, largest = (made.load(made.at(p, first), lanes) for p in (self.work.total, self.work.largest))
        one = w.splat(w.number(1.0, "float"), lanes)
        empty = w.compare("fcmp oeq", total, w.number(0.0, "float"))
        total = w.select(empty, one, total)
        made.store(w.binary("fdiv", one, total), made.at(self.work.change, first))
        start = self.exponent(self.finite(largest))
        logarithm = w.binary("fadd", start, self.em.library.emit(self.b, "log2", [total]))
        return w.select(empty, w.number(-math.inf, "float"), logarithm), self.exponent(largest)

    def finite(self, largest: Val) -> Val:
        """The largest score; 0 for a row that has seen nothing."""
        nothing = self.w.compare("fcmp oeq", largest, self.w.number(-math.inf, "float"))
        return self.w.select(nothing, self.w.number(0.0, "float"), largest)

    def exponent(self, score: Val) -> Val:
        """Of which power of 2 the score's exponential is."""
        return self.w.binary("fmul", score, self.w.number(LOG2E, "float"))

    def power(self, score: Val, base: Val) -> Val:
        """The exponential of a score by that of a row's largest. What would be a subnormal number, on which processors
        take a hundred times as long, is 0."""
        f, w = self.formulas, self.w
        power = f.fma(score, LOG2E, w.negate(base))
        power = f.pick(f.test("olt", power, -126.0), -127.0, power)
        shifted = f.add(power, MAGIC_32)
        rest = f.sub(power, f.sub(shifted, MAGIC_32))
        whole = w.binary("sub", f.bits(shifted), w.const(0x4B400000 - 127, "i32"))
        two = w.convert("bitcast", w.binary("shl", whole, w.const(23, "i32")), "float")
        return f.mul(f.fma(rest, f.poly(rest, coefficients.EXP2_32), 1.0), two)
