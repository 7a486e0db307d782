"""One Group to one LLVM module: an entry function and the bodies that threads run.

    i32 @K(ptr..., i64...)                fills a context (`context.py`) and starts the work
    void @K.body(ptr ctx, lo, hi, part)   runs tasks [lo, hi): outer indices, or segments of them

Where the outer ranges are too few for the threads, each Loop is started separately (`split.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from dovetail.codegen.common import ranges
from dovetail.codegen.common.signature import KernelSignature, kernel_symbol
from dovetail.codegen.cpu import axis, context, cost, half, tasks, vecmath
from dovetail.codegen.cpu.bounds import Bounds
from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.entry import EntryFunction
from dovetail.codegen.cpu.expressions import Expressions
from dovetail.codegen.cpu.loops import LoopEmitter, NestEmitter, States, accumulators, position
from dovetail.codegen.cpu.split import PhaseSplit, wanted
from dovetail.codegen.cpu.target import Processor, host
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims, stores
from dovetail.ir.dims import Symbol
from dovetail.ir.kernel import REPORT, Access, Kernel, report
from dovetail.ir.liveness import buffers, nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Group, Load, Store
from dovetail.ir.structure import structure_of
from dovetail.options import Options

CPU = torch.device("cpu")
_ATTRIBUTES = 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }'


def generate(
    group: Group, options: Options | None = None, target: Processor | None = None, many: bool = False
) -> Kernel:
    """The kernel of one group, or of `many` like it. Raises Unsupported for dtypes that CPU kernels cannot compute."""
    options, target, structure = options or Options(), target or host(), structure_of(group)
    key = (structure.key, options.numerics, options.check_kernels, target, many)
    kernel = _known.recall(key) or _known.keep(key, _Kernel(structure.renamed(), options, target, many).build())
    messages = tuple(s.message for s in group.statements() if isinstance(s, Check))
    return kernel.of_buffers(structure.by_number(), messages)


def assembled(declares: dict[str, str], library: vecmath.Library, functions: list[str]) -> str:
    """A module of these lines of functions, and what they call."""
    rounds = [half.FROM_DOUBLE] if all(any(t in f for f in functions) for t in ("half", "double")) else []
    return "\n".join([*sorted(declares.values()), library.text(), *rounds, *functions, _ATTRIBUTES, ""])


#: Kernels by structure, of the renamed groups.
_known = stores.Store(2000)


class _Kernel:
    def __init__(self, group: Group, options: Options, target: Processor, many: bool) -> None:
        self.original, self.target, self.many = group, target, many
        self.group = ranges.simplify(group)
        self.plan = axis.choose(self.group, target)
        self.signature = KernelSignature()
        self.declares: dict[str, str] = {}
        self.library = vecmath.Library(self.declares, native_scale=target.vector_bytes == 64)
        self.flags = "contract " if options.numerics == "default" else ""
        self.checks = [s for s in self.group.statements() if isinstance(s, Check)]
        self.numbers = {id(c): k + 1 for k, c in enumerate(self.checks)}
        self.words: dict[tuple[str, bool], int] | None = {} if options.check_kernels else None  # see Bounds

    def build(self) -> Kernel:
        phases = wanted(self.group, self.plan)
        functions = self.split() if phases else self.whole()
        text = self.assemble(functions)
        messages = tuple(c.message for c in self.checks)
        joins = not phases and not messages
        kernel = Kernel(
            "", text, self.pointers(), tuple(self.signature.sizes), messages, joins, self.many,
            accesses=tuple(Access(buffers(self.original)[name], stores) for name, stores in self.words or ()),
        )  # fmt: skip
        # The bits of a constant and a number of the program may have one text, but are handed over differently.
        name = kernel_symbol(self.group, f"{kernel.floats}{text}")
        return replace(kernel, symbol=name, text=text.replace("@K", f"@{name}"))

    def pointers(self) -> tuple[Buffer, ...]:
        """The original buffers, in the order of the text's pointer arguments."""
        found = buffers(self.original)
        return tuple(found[name] if name != REPORT else report(CPU) for name in self.signature.pointers)

    def assemble(self, functions: list[str]) -> str:
        return assembled(self.declares, self.library, functions)

    def make(self, on_fail: Callable[[int], list[str]]) -> LoopEmitter:
        """An emitter for a new function of this kernel."""
        em = Expressions(Builder(self.declares), self.signature, self.flags, self.library, self.target.halves)
        stored = {s.buffer.name for s in self.group.statements() if isinstance(s, Store)}
        roots = [r for s in self.group.statements() for r in statement_roots(s)]
        loaded = {n.buffer.name for n in nodes(roots) if isinstance(n, Load)}
        em.written = dict.fromkeys(sorted(stored & loaded), 0)
        em.bounds = None if self.words is None else Bounds(em.indices, self.words, on_fail)
        return LoopEmitter(em, on_fail)

    # ------------------------------------------------------------ several phases

    def split(self) -> list[str]:
        parts = PhaseSplit(self.group, self.plan, self.numbers, self.make)
        first = parts.first_argument
        main = parts.main()
        entry = EntryFunction(self.signature, self.declares, first).phases(self.group, self.plan, parts.partials)
        functions = ["define internal void @K.main(ptr %ctx) #0 {", "entry:"]
        functions += [*context.prologue(main, self.signature, first), *main, "}"]
        for name, lines in parts.phases:
            functions += [f"define internal void {name}(ptr %ctx, i64 %lo, i64 %hi, i64 %part) #0 {{", "entry:"]
            functions += [*context.prologue(lines, self.signature, first), *lines, "}"]
        return [*functions, *entry]

    # ------------------------------------------------------------ one phase

    def whole(self) -> list[str]:
        rows: list[str] = []  # lines that free the local buffers
        emitter = self.make(lambda status: [f"  store i64 {status}, ptr %ctx", *rows, "  ret void"])
        rows += self.allocate_rows(emitter.em)
        digits = [dims.as_symbol(r) for r in self.group.outer if dims.as_symbol(r) is not self.plan.outer]

        def body(start: Val | None, end: Val | None, states: States) -> States:
            if self.plan.outer is None:
                self.loops(emitter)
                return states
            assert start is not None and end is not None
            lanes = self.plan.lanes
            return emitter.vector(self.plan.outer, start, end, lanes, states, lambda s: self.loops(emitter, s))

        tasks.run(emitter, digits, self.segments(emitter, digits), [], body)
        first = context.FIRST_VALUE
        lines = [*emitter.b.text(), *rows, "  ret void"]
        axes = [self.plan.outer or a for a in self.plan.inner]
        costs = [cost.of_loop(loop, a) for loop, a in zip(self.group.loops, axes, strict=True)]
        make = EntryFunction(self.signature, self.declares, first)
        entry = make.many(self.group, self.plan, costs) if self.many else make.whole(self.group, self.plan, costs)
        head = ["define internal void @K.body(ptr %ctx, i64 %lo, i64 %hi, i64 %part) #0 {", "entry:"]
        return [*head, *context.prologue(lines, self.signature, first), *lines, "}", *entry]

    def segments(self, emitter: LoopEmitter, digits: list[Symbol]) -> tasks.Segments | None:
        """As the launcher says; for tiles one vector each, with the tile's other range fastest."""
        axis, tile = self.plan.outer, self.plan.tile
        if axis is None or tile is None:
            return None if axis is None else tasks.from_context(axis, len(digits))
        digits.remove(tile)
        digits.append(tile)
        w, lanes = emitter.w, self.plan.lanes
        more = w.binary("add", emitter.em.indices.extent(axis.extent), w.const(lanes - 1, "i64"))  # type: ignore[arg-type]
        count = w.binary("udiv", more, w.const(lanes, "i64"))
        return tasks.Segments(axis, len(digits) - 1, w.const(lanes, "i64"), count)

    def allocate_rows(self, em: Expressions) -> list[str]:
        """One block for the group's local buffers, 64-byte aligned; gives the lines that free it."""
        em.row_lanes = self.plan.lanes
        if not self.group.locals:
            return []
        w, b = em.w, em.b
        total = w.const(64, "i64")
        starts = []
        for buffer in self.group.locals:
            starts.append(total)
            unit = type_of(buffer.dtype).size * em.row_lanes
            size = w.binary("mul", em.indices.extent(buffer.numel), w.const(unit, "i64"))
            rounded = w.binary("and", w.binary("add", size, w.const(63, "i64")), w.const(-64, "i64"))
            total = w.binary("add", total, rounded)
        b.declare("malloc", "ptr", ["i64"])
        b.declare("free", "void", ["ptr"])
        b.line(f"%rows = call ptr @malloc(i64 {total.text})")
        b.line("%rows.i = ptrtoint ptr %rows to i64")
        b.line("%rows.m = and i64 %rows.i, -64")
        b.line("%rows.a = inttoptr i64 %rows.m to ptr")
        for buffer, start in zip(self.group.locals, starts, strict=True):
            em.rows[buffer.name] = b.op(f"getelementptr i8, ptr %rows.a, i64 {start.text}", "ptr", 1)
        return ["  call void @free(ptr %rows)"]

    def loops(self, emitter: LoopEmitter, states: States | None = None) -> States:
        """All Loops for the outer index, or for the outer indices of all lanes."""
        outer = self.plan.outer is not None
        for loop, symbol, lanes in zip(self.group.loops, self.plan.inner, self.plan.inner_lanes, strict=True):
            emitter.enter(loop)
            accs = accumulators(loop, self.plan.lanes if outer else lanes, 1 if outer else lanes)
            nest = NestEmitter(loop, accs, position(loop), self.numbers)
            results = emitter.nest(nest, symbol, lanes, emitter.start_states(accs))
            for acc, state in zip(accs, results, strict=True):
                folded = state if outer else emitter.reducer.fold(acc, state)
                emitter.em.values[acc.reduce.name] = emitter.reducer.result(acc, folded)
            emitter.leave()
        return states or []
