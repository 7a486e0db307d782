"""One Group to one LLVM module: an entry function and the bodies that threads run.

    i32 @K(ptr..., i64...)        fills a context, decides on threads, runs the phases
    void @K.par.n(ptr ctx)        a thread of the team: its share of phase n's tasks
    void @K.body.n(ptr ctx, lo, hi, part)

A phase is a set of independent tasks. Normally there is one phase whose tasks are the outer
indices (times segments of the vectorised outer range). Where the outer ranges are too few for
the threads (`split.py`), each Loop is a phase of its own whose tasks are inner indices.
"""

from __future__ import annotations

import hashlib
import re

from dovetail.codegen.cpu import axis, cost, ranges, vecmath
from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.entry import Entry
from dovetail.codegen.cpu.expressions import Expressions
from dovetail.codegen.cpu.loops import LoopEmitter, Nest, accumulators, position
from dovetail.codegen.cpu.signature import Signature
from dovetail.codegen.cpu.target import Target, host
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims
from dovetail.ir.dims import Symbol
from dovetail.ir.kernel import Kernel
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Group, Load, Store
from dovetail.options import Options

#: Context slots before the kernel's arguments.
STATUS, TASKS, SEGMENT, SEGMENTS = 0, 1, 2, 3
FIRST_ARGUMENT = 8


def generate(group: Group, options: Options | None = None, target: Target | None = None) -> Kernel:
    """The kernel of one group. Raises Unsupported for dtypes that CPU kernels cannot compute."""
    return _Kernel(group, options or Options(), target or host()).build()


class _Kernel:
    def __init__(self, group: Group, options: Options, target: Target) -> None:
        self.original, self.target = group, target
        self.group = ranges.simplify(group)
        self.plan = axis.choose(self.group, target)
        self.signature = Signature()
        self.declares: dict[str, str] = {}
        self.library = vecmath.Library(self.declares, native_scale=target.vector_bytes == 64)
        self.flags = "contract " if options.numerics == "default" else ""
        self.checks = [s for s in self.group.statements() if isinstance(s, Check)]

    def build(self) -> Kernel:
        body = self.body()
        entry = Entry(self.signature, self.declares, self.group, self.plan)
        axes = [self.plan.outer or a for a in self.plan.inner]
        work = [cost.of_loop(loop, a) for loop, a in zip(self.group.loops, axes, strict=True)]
        text = self.assemble([*body, *entry.build(work, FIRST_ARGUMENT)])
        symbol = f"k{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return Kernel(
            symbol, text.replace("@K", f"@{symbol}"), self.pointers(), tuple(self.signature.sizes),
            tuple(c.message for c in self.checks),
        )

    def pointers(self) -> tuple[Buffer, ...]:
        """The original buffers, in the order of the text's pointer arguments."""
        found: dict[str, Buffer] = {}
        for statement in self.original.statements():
            for node in nodes(statement_roots(statement)):
                if isinstance(node, Load):
                    found.setdefault(node.buffer.name, node.buffer)
            if isinstance(statement, Store):
                found.setdefault(statement.buffer.name, statement.buffer)
        return tuple(found[name] for name in self.signature.pointers)

    def assemble(self, functions: list[str]) -> str:
        attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }'
        return "\n".join([*sorted(self.declares.values()), self.library.text(), *functions, attributes, ""])

    # ------------------------------------------------------------ the body

    def body(self) -> list[str]:
        """The function that runs tasks [lo, hi)."""
        builder = Builder(self.declares)
        em = Expressions(builder, self.signature, self.flags, self.library)
        emitter = LoopEmitter(em, lambda status: [
            f"  store i64 {status}, ptr %ctx", *self.free_rows(em), "  ret void",
        ])
        self.find_written(em)
        self.allocate_rows(em)
        digits = [dims.as_symbol(r) for r in self.group.outer if dims.as_symbol(r) is not self.plan.outer]
        if self.plan.outer is None:
            self.tasks(em, digits, False, lambda _: self.loops(emitter))
        else:
            self.tasks(em, digits, True, lambda segment: self.segment(emitter, segment))
        lines = [*builder.text(), *self.free_rows(em)]
        head = "define internal void @K.body(ptr %ctx, i64 %lo, i64 %hi, i64 %part) #0 {"
        return [head, "entry:", *self.prologue(lines), *lines, "  ret void", "}"]

    def find_written(self, em: Expressions) -> None:
        stored = {s.buffer.name for s in self.group.statements() if isinstance(s, Store)}
        roots = [r for s in self.group.statements() for r in statement_roots(s)]
        loaded = {n.buffer.name for n in nodes(roots) if isinstance(n, Load)}
        em.written = dict.fromkeys(stored & loaded, 0)

    def prologue(self, lines: list[str]) -> list[str]:
        """Load from the context the arguments that `lines` mention."""
        used = set(re.findall(r"%[pn]\d+\b", "\n".join(lines)))
        found = []
        for name, kind, slot in self.slots():
            if name in used:
                found.append(f"  {name}.at = getelementptr i64, ptr %ctx, i64 {slot}")
                found.append(f"  {name} = load {kind}, ptr {name}.at, align 8")
        for name, slot in (("%segment", SEGMENT), ("%segments", SEGMENTS)):
            if self.plan.outer is not None:
                found.append(f"  {name}.at = getelementptr i64, ptr %ctx, i64 {slot}")
                found.append(f"  {name} = load i64, ptr {name}.at, align 8")
        return found

    def slots(self) -> list[tuple[str, str, str]]:
        """Argument names, types and context slots; sizes come first, from the end of the header."""
        sizes = [(f"%n{k}", "i64", str(FIRST_ARGUMENT + 2 * k)) for k in range(len(self.signature.sizes))]
        pointers = [(f"%p{k}", "ptr", str(FIRST_ARGUMENT + 2 * k + 1)) for k in range(len(self.signature.pointers))]
        return sizes + pointers

    # ------------------------------------------------------------ local rows

    def allocate_rows(self, em: Expressions) -> None:
        """One block for the group's local buffers, side by side, 64-byte aligned."""
        em.row_lanes = self.plan.lanes
        if not self.group.locals:
            return
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

    def free_rows(self, em: Expressions) -> list[str]:
        return ["  call void @free(ptr %rows)"] if em.rows else []

    # ------------------------------------------------------------ tasks

    def tasks(self, em: Expressions, digits: list[Symbol], segmented: bool, run) -> None:  # type: ignore[no-untyped-def]
        """Loop over task numbers, kept as one digit for each range; segments are the last digit."""
        w, b = em.w, em.b
        extents = [em.indices.extent(s.extent) for s in digits]  # type: ignore[arg-type]
        if segmented:
            extents.append(Val("%segments", "i64", 1, 0))
        rest = Val("%lo", "i64", 1, 0)
        first: list[Val] = []
        for size in extents[:0:-1]:
            first.insert(0, w.binary("urem", rest, size))
            rest = w.binary("udiv", rest, size)
        first.insert(0, rest)

        def task(index: Val, names: list[str]) -> list[str]:
            now = [Val(n, "i64", 1, b.depth) for n in names] if len(extents) > 1 else [index]
            for symbol, digit in zip(digits, now, strict=False):
                em.indices.bound[symbol] = digit
            run(now[-1] if segmented else None)
            return self.advance(em, now, extents) if len(extents) > 1 else []

        carried = [("i64", v.text) for v in first] if len(extents) > 1 else []
        b.loop(Val("%lo", "i64", 1, 0), Val("%hi", "i64", 1, 0), "1", carried, task)

    def advance(self, em: Expressions, digits: list[Val], extents: list[Val]) -> list[str]:
        """The digits of the next task."""
        w, following = em.w, []
        carry = w.const(1, "i64")
        for k in range(len(digits) - 1, 0, -1):
            more = w.binary("add", digits[k], carry)
            over = w.compare("icmp eq", more, extents[k])
            following.insert(0, w.select(over, w.const(0, "i64"), more).text)
            carry = w.convert("zext", over, "i64")
        following.insert(0, w.binary("add", digits[0], carry).text)
        return following

    def segment(self, emitter: LoopEmitter, segment: Val) -> None:
        """One segment of the vectorised outer range, `lanes` outer indices at a time."""
        em, symbol = emitter.em, self.plan.outer
        assert symbol is not None and symbol.extent is not None
        length = Val("%segment", "i64", 1, 0)
        start = em.w.binary("mul", segment, length)
        end = em.w.minmax("min", em.w.binary("add", start, length), em.indices.extent(symbol.extent), "int")

        def run(states):  # type: ignore[no-untyped-def]
            self.loops(emitter)
            return states

        emitter.vector(symbol, start, end, self.plan.lanes, [], run)

    def loops(self, emitter: LoopEmitter) -> None:
        """All Loops for the outer index, or for the outer indices of all lanes."""
        em = emitter.em
        numbers = {id(c): k + 1 for k, c in enumerate(self.checks)}
        for loop, symbol, lanes in zip(self.group.loops, self.plan.inner, self.plan.inner_lanes, strict=True):
            em.pinned = frozenset(
                s.buffer.name for s in loop.body if isinstance(s, Store) and s.buffer.name in em.written
            )
            em.written = dict.fromkeys(em.written, em.b.depth)
            wide = self.plan.lanes if self.plan.outer is not None else lanes
            accs = accumulators(loop, wide, 1 if self.plan.outer is not None else lanes)
            nest = Nest(loop, accs, position(loop), numbers)
            states = emitter.nest(nest, symbol, lanes, emitter.start_states(accs))
            for acc, state in zip(accs, states, strict=True):
                folded = state if self.plan.outer is not None else emitter.reducer.fold(acc, state)
                em.values[acc.reduce.name] = emitter.reducer.result(acc, folded)
            em.floor = min(em.floor, em.b.depth)
        em.pinned = frozenset()



