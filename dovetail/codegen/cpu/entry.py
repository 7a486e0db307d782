"""The entry function `i32 @K(ptr..., i64...)`: fill the context and start the work."""

from __future__ import annotations

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.cpu import context
from dovetail.codegen.cpu.axis import VectorPlan
from dovetail.ir import dims, launch
from dovetail.ir.loops import Group, Loop
from dovetail.ir.ranges import extent


class EntryFunction:
    """Straight-line text; trip counts are multiplied here, once a call, from the kernel's arguments.

    `first` is the context slot of the first argument; `partials` the number of 8-byte partial
    results of a thread, at most.
    """

    def __init__(self, signature: KernelSignature, declares: dict[str, str], first: int) -> None:
        self.signature, self.declares, self.first = signature, declares, first
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def product(self, factors: list[str]) -> str:
        total = "1"
        for factor in factors:
            total = factor if total == "1" else total if factor == "1" else self.op(f"mul i64 {total}, {factor}")
        return total

    def work(self, loops: tuple[Loop, ...], costs: list[int]) -> str:
        """Picoseconds of one outer index; `costs` are those of one innermost index of each loop."""
        total = "0"
        for loop, cost in zip(loops, costs, strict=True):
            trips = self.product([self.signature.extent(extent(r)) for r in loop.inner])
            total = self.op(f"add i64 {total}, {self.op(f'mul i64 {trips}, {cost}')}")
        return total

    def whole(self, group: Group, plan: VectorPlan, costs: list[int]) -> list[str]:
        """One phase: the body's tasks are the outer indices, the vectorised range cut in segments."""
        rows, span = self.rows(group, plan), self.span(plan)
        total = self.product([rows, span])
        self.skip_empty(total)
        work = self.op(f"mul i64 {total}, {self.work(group.loops, costs)}")
        context.declare_launch(self.declares)
        start = f"ptr %ctx, ptr @K.body, {self.tasks(plan, rows, span)}, i64 {work}"
        return self.finish([f"  call void @{launch.LAUNCH}({start})"], 0)

    def span(self, plan: VectorPlan) -> str:
        return "1" if plan.outer is None else self.signature.extent(plan.outer.extent)  # type: ignore[arg-type]

    def tasks(self, plan: VectorPlan, rows: str, span: str) -> str:
        """The launcher's rows, span and lanes."""
        lanes = plan.lanes if plan.outer is not None else 0
        if plan.tile is not None:  # one task for each vector
            vectors = self.op(f"udiv i64 {self.op(f'add i64 {span}, {lanes - 1}')}, {lanes}")
            rows, span, lanes = self.product([rows, vectors]), "1", 0
        return f"i64 {rows}, i64 {span}, i64 {lanes}"

    def many(self, group: Group, plan: VectorPlan, costs: list[int]) -> list[str]:
        """`i32 @K(ptr records, i64 count)`: a context for each record of pointers and sizes, and one launch."""
        rows, span = self.rows(group, plan), self.span(plan)
        total = self.product([rows, span])
        work = self.op(f"mul i64 {total}, {self.work(group.loops, costs)}")
        facts = self.tasks(plan, rows, span).replace("i64 ", "").split(", ")
        context.declare_launch_many(self.declares)
        slots, loaded, fill = self.slots(), [], context.store("%s", launch.STATUS, "0")
        for number, (name, kind, slot) in enumerate(self.in_order()):
            loaded += [f"  {name}.in = getelementptr i64, ptr %record, i64 {number}"]
            loaded += [f"  {name} = load {kind}, ptr {name}.in, align 8"]
            fill += context.store(f"{name}.to", slot, name, kind)
        for number, (slot, value) in enumerate(zip(launch.GIVEN, (*facts, work), strict=True)):
            fill += context.store(f"%g{number}", slot, value)
        width = len(self.signature.pointers) + len(self.signature.sizes)
        return [
            "define internal void @K.fill(ptr %ctx, ptr %record) #0 {", "entry:", *loaded, *self.lines, *fill,
            "  ret void", "}", "define i32 @K(ptr %records, i64 %count) #0 {",
            f"  call void @{launch.LAUNCH_MANY}(ptr %records, i64 {width}, i64 {slots}, i64 %count, ptr @K.fill, "
            "ptr @K.body)", "  ret i32 0", "}",
        ]  # fmt: skip

    def slots(self) -> int:
        return self.first + 2 * max(len(self.signature.sizes), len(self.signature.pointers))

    def in_order(self) -> list[tuple[str, str, int]]:
        """The arguments as they are given: pointers, then sizes."""
        return sorted(context.arguments(self.signature, self.first), key=lambda a: (a[0][1] != "p", int(a[0][2:])))

    def phases(self, group: Group, plan: VectorPlan, partials: int) -> list[str]:
        """Several phases, started one after the other by `@K.main`."""
        self.skip_empty(self.rows(group, plan))
        return self.finish(["  call void @K.main(ptr %ctx)"], partials)

    def rows(self, group: Group, plan: VectorPlan) -> str:
        return self.product(
            [self.signature.extent(extent(r)) for r in group.outer if dims.as_symbol(r) is not plan.outer]
        )

    def skip_empty(self, total: str) -> None:
        if total != "1":
            self.lines += [f"  %empty = icmp eq i64 {total}, 0", "  br i1 %empty, label %none, label %some"]
            self.lines += ["none:", "  ret i32 0", "some:"]

    def finish(self, start: list[str], partials: int) -> list[str]:
        sizes, pointers = len(self.signature.sizes), len(self.signature.pointers)
        slots = self.slots()
        fill = context.store("%s", launch.STATUS, "0")
        for name, kind, slot in context.arguments(self.signature, self.first):
            fill += context.store(f"{name}.to", slot, name, kind)
        head = [f"  %ctx = alloca [{slots} x i64], align 64"]
        if partials:
            head.append(f"  %parts = alloca [{partials * launch.MOST_THREADS} x i64], align 64")
            fill += context.store("%q", launch.PARTIALS, "%parts", "ptr")
        parameters = [f"ptr %p{k}" for k in range(pointers)] + [f"i64 %n{k}" for k in range(sizes)]
        return [
            f"define i32 @K({', '.join(parameters)}) #0 {{", "entry:", *head, *self.lines, *fill, *start,
            "  %status = load i32, ptr %ctx, align 8", "  ret i32 %status", "}",
        ]  # fmt: skip
