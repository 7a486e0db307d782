"""Groups with few outer indices and long reductions: every Loop becomes a phase of its own.

before:  outer ()   Loop(i<4M): Reduce r = sum(x[i])          Loop(): Store(y, r)
after:   main: launch phase 0 (tasks: segments of i; each thread writes its partial result),
               r = partial results joined in thread order;    store r

The results of a fixed number of threads are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.codegen.cpu import context, cost, tasks
from dovetail.codegen.cpu.axis import VectorPlan, vectorizable
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.loops import LoopEmitter, NestEmitter, States, accumulators, position
from dovetail.codegen.cpu.reductions import Accumulator
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims, dimvalues, launch
from dovetail.ir.dims import Symbol
from dovetail.ir.loops import Group, Loop, Reduce
from dovetail.ir.ranges import extent

#: Fewer outer indices than this leave threads idle.
FEW_ROWS = 32


def wanted(group: Group, plan: VectorPlan) -> bool:
    """Would the outer indices alone leave threads idle while there is work for them?"""
    if plan.outer is not None or group.locals:
        return False
    rows = dimvalues.typical(dims.product(extent(r) for r in group.outer))
    if rows >= FEW_ROWS:
        return False
    return any(
        splittable(loop, axis) and _long(loop, axis)
        for loop, axis in zip(group.loops, plan.inner, strict=True)
    )


def splittable(loop: Loop, axis: Symbol | None) -> bool:
    """Each task must be known to have indices; the vectorised range may be empty."""
    others = [extent(r) for r in loop.inner if dims.as_symbol(r) is not axis]
    return axis is not None and vectorizable(loop) and all(dims.known_nonnegative(n - 1) for n in others)


def _long(loop: Loop, axis: Symbol | None) -> bool:
    trips = dimvalues.typical(dims.product(extent(r) for r in loop.inner))
    return trips * cost.of_loop(loop, axis) > launch.PARALLEL_PICOSECONDS


class PhaseSplit:
    """Emits `@K.main` and one body for each phase; `make(on_fail)` gives an emitter of a new function."""

    def __init__(
        self, group: Group, plan: VectorPlan, numbers: dict[int, int], make: Callable[..., LoopEmitter]
    ) -> None:
        self.group, self.plan, self.numbers, self.make = group, plan, numbers, make
        self.symbols = [dims.as_symbol(r) for r in group.outer]
        self.reduces = [s for s in group.statements() if isinstance(s, Reduce)]
        self.phases: list[tuple[str, list[str]]] = []

    @property
    def first_argument(self) -> int:
        return context.FIRST_VALUE + len(self.symbols) + len(self.reduces)

    @property
    def partials(self) -> int:
        """Partial results of a thread, at most."""
        return max(2 * sum(isinstance(s, Reduce) for s in loop.body) for loop in self.group.loops)

    def slot(self, what: Symbol | str) -> int:
        if isinstance(what, Symbol):
            return context.FIRST_VALUE + self.symbols.index(what)
        return context.FIRST_VALUE + len(self.symbols) + [r.name for r in self.reduces].index(what)

    def main(self) -> list[str]:
        """The body of `void @K.main(ptr %ctx)`."""
        emitter = self.make(lambda status: [f"  store i64 {status}, ptr %ctx", "  ret void"])

        def level(k: int) -> None:
            if k == len(self.symbols):
                return self.loops(emitter)

            def inside(states: States) -> States:
                level(k + 1)
                return states

            emitter.each(self.symbols[k], [], inside)

        level(0)
        return [*emitter.b.text(), "  ret void"]

    def loops(self, emitter: LoopEmitter) -> None:
        em = emitter.em
        for symbol in self.symbols:
            self.put(emitter, self.slot(symbol), em.indices.bound[symbol])
        for number, loop in enumerate(self.group.loops):
            axis, lanes = self.plan.inner[number], self.plan.inner_lanes[number]
            emitter.enter(loop)
            if splittable(loop, axis):
                assert axis is not None
                accs, states = self.start(emitter, number, loop, axis, lanes)
            else:
                accs = accumulators(loop, lanes, lanes)
                nest = NestEmitter(loop, accs, position(loop), self.numbers)
                states = emitter.nest(nest, axis, lanes, emitter.start_states(accs))
                states = [emitter.reducer.fold(a, s) for a, s in zip(accs, states, strict=True)]
            for acc, state in zip(accs, states, strict=True):
                result = emitter.reducer.result(acc, state)
                em.values[acc.reduce.name] = result
                self.put(emitter, self.slot(acc.reduce.name), result)
            emitter.leave()

    def put(self, emitter: LoopEmitter, slot: int, value: Val) -> None:
        emitter.b.scope.lines += context.store(f"%{emitter.b.fresh('put')}", slot, value.text, value.element)

    # ------------------------------------------------------------ a phase

    def start(
        self, emitter: LoopEmitter, number: int, loop: Loop, axis: Symbol, lanes: int
    ) -> tuple[list[Accumulator], States]:
        """Start the phase and join its partial results; the states have one lane."""
        w, indices = emitter.w, emitter.em.indices
        accs = accumulators(loop, lanes, 0)
        others = [dims.as_symbol(r) for r in loop.inner if dims.as_symbol(r) is not axis]
        name = f"@K.phase{number}"
        self.phases.append((name, self.phase(number, loop, axis, lanes, others)))
        rows = w.const(1, "i64")
        for symbol in others:
            rows = w.binary("mul", rows, indices.extent(symbol.extent))  # type: ignore[arg-type]
        span = indices.extent(axis.extent)  # type: ignore[arg-type]
        total = w.binary("mul", rows, span)
        work = w.binary("mul", total, w.const(cost.of_loop(loop, axis), "i64"))
        context.declare_launch(emitter.b.declares)
        # An empty range has no segments: one task of length zero keeps divisors positive.
        rows, span = (w.minmax("max", v, w.const(1, "i64"), "int") for v in (rows, span))
        emitter.b.line(
            f"call void @{launch.LAUNCH}(ptr %ctx, ptr {name}, {rows.typed}, {span.typed}, i64 {lanes}, {work.typed})"
        )
        self.stop_on_failure(emitter)
        return [self.single(a) for a in accs], self.join(emitter, accs)

    def single(self, acc: Accumulator) -> Accumulator:
        return Accumulator(acc.reduce, 1, acc.blocked)

    def stop_on_failure(self, emitter: LoopEmitter) -> None:
        if not self.numbers and emitter.em.bounds is None:
            return
        tag = emitter.b.fresh("status")
        emitter.b.scope.lines += [
            f"  %{tag} = load i64, ptr %ctx, align 8", f"  %{tag}.c = icmp eq i64 %{tag}, 0",
            f"  br i1 %{tag}.c, label %{tag}.ok, label %{tag}.bad", f"{tag}.bad:", "  ret void",
        ]  # fmt: skip
        emitter.b.label(f"{tag}.ok")

    def join(self, emitter: LoopEmitter, accs: list[Accumulator]) -> States:
        """All threads' partial results, in the order of threads."""
        if not accs:
            return []
        b, w = emitter.b, emitter.w
        at = b.fresh("parts")
        b.scope.lines += context.load(f"%{at}", launch.PARTS)
        single = [self.single(a) for a in accs]
        width = sum(len(a.outer_parts) for a in accs)

        def step(index: Val, inside: States) -> States:
            base = b.op(f"mul i64 {index.text}, {width}", "i64", 1)
            following, k = [], 0
            for acc, state in zip(single, inside, strict=True):
                loaded = []
                for element, _ in acc.outer_parts:
                    place = b.op(f"add i64 {base.text}, {k}", "i64", 1)
                    pointer = b.op(f"getelementptr i64, ptr %partials, i64 {place.text}", "ptr", 1)
                    loaded.append(b.op(f"load {element}, ptr {pointer.text}, align 8", element, 1))
                    k += 1
                following.append(emitter.reducer.join(acc, state, loaded))
            return following

        return emitter.carry(
            w.const(0, "i64"), Val(f"%{at}", "i64", 1, b.depth), "1", emitter.start_states(single), step, False
        )

    def phase(self, number: int, loop: Loop, axis: Symbol, lanes: int, others: list[Symbol]) -> list[str]:
        """The body of `void @K.phase<number>(ptr %ctx, i64 %lo, i64 %hi, i64 %part)`."""
        emitter = self.make(lambda status: [f"  store i64 {status}, ptr %ctx", "  ret void"])
        em, b = emitter.em, emitter.b
        for symbol in self.symbols:
            em.indices.bound[symbol] = self.get(emitter, self.slot(symbol), "i64")
        for earlier in self.group.loops[:number]:
            for statement in earlier.body:
                if isinstance(statement, Reduce):
                    kind = type_of(statement.dtype).register
                    em.values[statement.name] = self.get(emitter, self.slot(statement.name), kind)
        emitter.enter(loop)
        accs = accumulators(loop, lanes, 0)
        nest = NestEmitter(loop, accs, position(loop), self.numbers)
        blocked = any(a.blocked for a in accs)

        def body(start: Val | None, end: Val | None, states: States) -> States:
            assert start is not None and end is not None
            limit = em.w.minmax("min", end, em.indices.extent(axis.extent), "int")  # type: ignore[arg-type]
            main = emitter.block_loop(accs) if blocked else None
            return emitter.vector(axis, start, limit, lanes, states, lambda s: emitter.statements(nest, s), main)

        states = tasks.run(emitter, others, tasks.from_context(axis, len(others)), emitter.start_states(accs), body)
        k, width = 0, sum(len(a.outer_parts) for a in accs)
        for acc, state in zip(accs, states, strict=True):
            for value in emitter.reducer.fold(acc, state):
                base = em.w.binary("mul", Val("%part", "i64", 1, 0), em.w.const(width, "i64"))
                place = em.w.binary("add", base, em.w.const(k, "i64"))
                pointer = b.op(f"getelementptr i64, ptr %partials, i64 {place.text}", "ptr", 1)
                b.line(f"store {value.typed}, ptr {pointer.text}, align 8")
                k += 1
        return [*b.text(), "  ret void"]

    def get(self, emitter: LoopEmitter, slot: int, kind: str) -> Val:
        name = f"%{emitter.b.fresh('get')}"
        emitter.b.scope.lines += context.load(name, slot, kind)
        return Val(name, kind, 1, 0)
