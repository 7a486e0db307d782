"""Instructions of a group's loops: nests, vector loops with masked tails, statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import torch

from dovetail.codegen.cpu import types
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.expressions import Expressions
from dovetail.codegen.cpu.reductions import BLOCK_STEPS, Accumulator, Reducer
from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.loops import Check, Loop, Reduce, Store
from dovetail.ir.ranges import extent
from dovetail.ir.records import dataclass

States = list[list[Val]]  # one list of parts for each accumulator
Step = Callable[[Val, States], States]


@dataclass
class NestEmitter:
    """What one Loop needs while its statements are emitted."""

    loop: Loop
    accumulators: list[Accumulator]
    place: Dim  # row-major position in the inner ranges
    numbers: dict[int, int] = field(default_factory=dict)  # id of a Check -> its status


class LoopEmitter:
    """Emits loops into the function of `em`; `on_fail(status)` gives the lines that leave it."""

    def __init__(self, em: Expressions, on_fail: Callable[[int], list[str]]) -> None:
        self.em, self.b, self.w = em, em.b, em.w
        self.reducer = Reducer(em.w)
        self.on_fail = on_fail
        self.rewrap = rewrap

    def enter(self, loop: Loop) -> None:
        """Before a Loop: loads of what the group writes stay inside it."""
        em = self.em
        em.written = dict.fromkeys(em.written, self.b.depth)
        em.pinned = frozenset(
            s.buffer.name for s in loop.body if isinstance(s, Store) and s.buffer.name in em.written
        )

    def leave(self) -> None:
        """After a Loop: later loads stay below its checks."""
        self.em.pinned = frozenset()
        self.em.floor = min(self.em.floor, self.b.depth)

    # ------------------------------------------------------------ loops with accumulators

    def carry(self, start: Val, end: Val, step: str, states: States, body: Step, guarded: bool = True) -> States:
        """A loop whose carried values are accumulators."""
        flat = [v for state in states for v in state]

        def run(index: Val, names: list[str]) -> list[str]:
            following = body(index, rewrap(states, names, self.b.depth))
            return [v.text for state in following for v in state]

        results = self.b.loop(start, end, step, [(v.type, v.text) for v in flat], run, guarded)
        return rewrap(states, results, self.b.depth)

    def once(self, start: Val, end: Val, states: States, body: Step) -> States:
        """The last, partial vector, if there is one."""
        flat = [v for state in states for v in state]

        def run(index: Val, names: list[str]) -> list[str]:
            return [v.text for state in body(index, rewrap(states, names, self.b.depth)) for v in state]

        results = self.b.once(start, end, [(v.type, v.text) for v in flat], run)
        return rewrap(states, results, self.b.depth)

    def each(self, symbol: Symbol, states: States, body: Callable[[States], States]) -> States:
        """A scalar loop over a whole range."""
        assert symbol.extent is not None
        guarded = not dims.known_nonnegative(symbol.extent - 1)

        def step(index: Val, inside: States) -> States:
            self.em.indices.bound[symbol] = index
            return body(inside)

        return self.carry(self.w.const(0, "i64"), self.em.indices.extent(symbol.extent), "1", states, step, guarded)

    def vector(
        self, symbol: Symbol, start: Val, end: Val, lanes: int, states: States,
        body: Callable[[States], States], main: Callable[..., States] | None = None,
    ) -> States:
        """`lanes` indices at a time; the last ones, fewer, under a mask."""
        indices = self.em.indices
        indices.vector, indices.lanes = symbol, lanes

        def full(index: Val, inside: States) -> States:
            indices.bound[symbol] = index
            return body(inside)

        def tail(index: Val, inside: States) -> States:
            left = self.w.convert("trunc", self.w.binary("sub", end, index), "i32")
            numbers = Val(f"<{', '.join(f'i32 {k}' for k in range(lanes))}>", "i32", lanes, 0)
            self.em.mask = self.w.compare("icmp ult", numbers, self.w.splat(left, lanes))
            result = full(index, inside)
            self.em.mask = None
            return result

        if lanes == 1:
            states = (main or self.carry)(start, end, "1", states, full)
        else:
            whole = self.w.binary("and", self.w.binary("sub", end, start), self.w.const(-lanes, "i64"))
            middle = self.w.binary("add", start, whole)
            states = (main or self.carry)(start, middle, str(lanes), states, full)
            states = self.once(middle, end, states, self.blocked_once(tail) if main else tail)
        indices.vector, indices.lanes = None, 1
        return states

    # ------------------------------------------------------------ blocked sums

    def block_loop(self, accumulators: list[Accumulator]) -> Callable[..., States]:
        """A replacement of `carry` that adds up blocks of float32 partial sums in float64."""
        if not any(a.blocked for a in accumulators):
            return self.carry

        def run(start: Val, end: Val, step: str, states: States, body: Step, guarded: bool = True) -> States:
            size = str(BLOCK_STEPS * int(step))

            def block(first: Val, outside: States) -> States:
                after = self.w.binary("add", first, self.w.const(size, "i64"))
                last = self.w.minmax("min", after, end, "int")
                fresh = self._enter(accumulators, outside)
                return self._leave(accumulators, outside, self.carry(first, last, step, fresh, body, False))

            return self.carry(start, end, size, states, block, guarded)

        self._accumulators = accumulators
        return run

    def blocked_once(self, body: Step) -> Step:
        """One step as a block of its own."""
        accumulators = self._accumulators

        def run(index: Val, outside: States) -> States:
            inside = body(index, self._enter(accumulators, outside))
            return self._leave(accumulators, outside, inside)

        return run

    _accumulators: list[Accumulator]

    def _enter(self, accumulators: list[Accumulator], outside: States) -> States:
        fresh = []
        for acc, state in zip(accumulators, outside, strict=True):
            initial = [types.splat(v, e, acc.lanes) for e, v in acc.parts]
            fresh.append(acc.wrap(initial, 0, False) if acc.blocked else state)
        return fresh

    def _leave(self, accumulators: list[Accumulator], outside: States, inside: States) -> States:
        return [
            self.reducer.flush(acc, old, new) if acc.blocked else new
            for acc, old, new in zip(accumulators, outside, inside, strict=True)
        ]

    # ------------------------------------------------------------ one Loop

    def start_states(self, accumulators: list[Accumulator]) -> States:
        return [
            acc.wrap([text for _, text in acc.carried(True)], 0, True) for acc in accumulators
        ]

    def nest(self, nest: NestEmitter, axis: Symbol | None, lanes: int, states: States) -> States:
        """All inner ranges; `axis` is the vectorised one, innermost whatever its place."""
        scalars = [dims.as_symbol(r) for r in nest.loop.inner if dims.as_symbol(r) is not axis]
        self._accumulators = nest.accumulators
        blocked = any(a.blocked for a in nest.accumulators)

        def level(k: int, inside: States) -> States:
            if k < len(scalars):
                if k == len(scalars) - 1 and axis is None and blocked:
                    return self._block_range(scalars[k], inside, nest)
                return self.each(scalars[k], inside, lambda s: level(k + 1, s))
            if axis is None:
                return self.statements(nest, inside)
            zero, end = self.w.const(0, "i64"), self.em.indices.extent(axis.extent)  # type: ignore[arg-type]
            return self.vector(
                axis, zero, end, lanes, inside, lambda s: self.statements(nest, s),
                self.block_loop(nest.accumulators) if blocked else None,
            )

        return level(0, states)

    def _block_range(self, symbol: Symbol, states: States, nest: NestEmitter) -> States:
        def step(index: Val, inside: States) -> States:
            self.em.indices.bound[symbol] = index
            return self.statements(nest, inside)

        zero, end = self.w.const(0, "i64"), self.em.indices.extent(symbol.extent)  # type: ignore[arg-type]
        return self.block_loop(nest.accumulators)(zero, end, "1", states, step)

    def statements(self, nest: NestEmitter, states: States) -> States:
        """The body for one index, or for one of every lane."""
        em, following, at = self.em, [], 0
        late: list[tuple[Store, Val]] = []
        for statement in nest.loop.body:
            if isinstance(statement, Store):
                assert not statement.scan, "scans are for GPUs"
                value = em.value(statement.value)
                if em.pinned:  # something in this body may read what is stored
                    em.store(statement.buffer, statement.index[0], value)
                else:
                    late.append((statement, value))
            elif isinstance(statement, Check):
                self.check(em.value(statement.condition), nest.numbers[id(statement)])
            else:
                acc = nest.accumulators[at]
                place = em.indices.each(nest.place) if statement.kind.startswith("arg") else None
                following.append(self.reducer.step(acc, states[at], em.value(statement.value), place, em.mask))
                at += 1
        for store, value in late:  # after every load: an output may share an input's memory
            em.store(store.buffer, store.index[0], value)
        return following

    def check(self, condition: Val, status: int) -> None:
        """Leave the function with `status` where the condition is false in a live lane."""
        wrong = self.w.invert(condition)
        if self.em.mask is not None:
            wrong = self.w.both(wrong, self.em.mask)
        if wrong.lanes > 1:
            name = f"llvm.vector.reduce.or.v{wrong.lanes}i1"
            self.b.declare(name, "i1", [wrong.type])
            wrong = self.b.op(f"call i1 @{name}({wrong.typed})", "i1", 1)
        tag = self.b.fresh("check")
        self.b.line(f"br i1 {wrong.text}, label %{tag}.bad, label %{tag}.ok")
        self.b.scope.lines += [f"{tag}.bad:", *self.on_fail(status)]
        self.b.label(f"{tag}.ok")
        self.em.floor = max(self.em.floor, self.b.depth)


def rewrap(states: States, names: list[str], depth: int) -> States:
    """The same shape with other names."""
    found = iter(names)
    return [[Val(next(found), v.element, v.lanes, depth) for v in state] for state in states]


def position(loop: Loop) -> Dim:
    """The row-major position in the loop's inner ranges."""
    place: Dim = 0
    for r in loop.inner:
        place = place * extent(r) + r
    return place


def accumulators(loop: Loop, lanes: int, sharing: int) -> list[Accumulator]:
    """The loop's Reduces; float32 sums of more terms than a block holds are blocked.

    `sharing` lanes divide the inner ranges among them.
    """
    terms = dims.product(extent(r) for r in loop.inner)
    short = dims.known_nonnegative(BLOCK_STEPS * sharing - terms)
    single = (torch.float32, torch.float16, torch.bfloat16)
    return [
        Accumulator(s, lanes, s.kind == "sum" and s.dtype in single and not short)
        for s in loop.body
        if isinstance(s, Reduce)
    ]
