"""The entry function: fill the context, decide whether to use threads, run the body."""

from __future__ import annotations

from dovetail.codegen.cpu.axis import Plan
from dovetail.codegen.cpu.cost import PARALLEL_PICOSECONDS
from dovetail.codegen.cpu.signature import Signature
from dovetail.ir import dims
from dovetail.ir.loops import Group, extent


class Entry:
    """Straight-line text; sizes are computed here once for a call, from the kernel's arguments."""

    def __init__(self, signature: Signature, declares: dict[str, str], group: Group, plan: Plan) -> None:
        self.signature, self.declares, self.group, self.plan = signature, declares, group, plan
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def product(self, factors: list[str]) -> str:
        total = "1"
        for factor in factors:
            total = factor if total == "1" else self.op(f"mul i64 {total}, {factor}")
        return total

    def put(self, slot: int, value: str, kind: str = "i64") -> None:
        place = self.op(f"getelementptr i64, ptr %ctx, i64 {slot}")
        self.lines.append(f"  store {kind} {value}, ptr {place}, align 8")

    def build(self, work: list[int], first: int) -> list[str]:
        """`work`: picoseconds of one innermost index of each loop."""
        sign, outer = self.signature, self.plan.outer
        digits = [sign.extent(extent(r)) for r in self.group.outer if dims.as_symbol(r) is not outer]
        span = sign.extent(outer.extent) if outer is not None else "1"  # type: ignore[arg-type]
        inner = [[sign.extent(extent(r)) for r in loop.inner] for loop in self.group.loops]
        for name, kind in (("omp_in_parallel", "i32"), ("omp_get_max_threads", "i32")):
            self.declares[name] = f"declare {kind} @{name}()"
        self.declares["GOMP_parallel"] = "declare void @GOMP_parallel(ptr, ptr, i32, i32)"
        rows = self.product(digits)
        total = self.product([rows, span])
        self.lines += [f"  %empty = icmp eq i64 {total}, 0", "  br i1 %empty, label %none, label %some"]
        self.lines += ["none:", "  ret i32 0", "some:"]
        count = len(sign.sizes), len(sign.pointers)
        for k in range(count[0]):
            self.put(first + 2 * k, f"%n{k}")
        for k in range(count[1]):
            self.put(first + 2 * k + 1, f"%p{k}", "ptr")
        self.put(0, "0")
        each = "0"
        for extents, picoseconds in zip(inner, work, strict=True):
            each = self.op(f"add i64 {each}, {self.op(f'mul i64 {self.product(extents)}, {picoseconds}')}")
        self.threads(rows, span, self.op(f"mul i64 {total}, {each}"))
        slots = first + 2 * max(count)
        parameters = [f"ptr %p{k}" for k in range(count[1])] + [f"i64 %n{k}" for k in range(count[0])]
        head = [f"define i32 @K({', '.join(parameters)}) #0 {{", "entry:", f"  %ctx = alloca [{slots} x i64], align 64"]
        return [*self.team(), *head, *self.lines, "}"]

    def threads(self, rows: str, span: str, work: str) -> None:
        """Run tasks here, or on a team when the work is worth it and no team is running already."""
        self.lines += [
            f"  %large = icmp ugt i64 {work}, {PARALLEL_PICOSECONDS}", "  br i1 %large, label %ask, label %one", "ask:",
            "  %inside = call i32 @omp_in_parallel()", "  %max = call i32 @omp_get_max_threads()",
            "  %free = icmp eq i32 %inside, 0", "  %more = icmp sgt i32 %max, 1", "  %use = and i1 %free, %more",
            "  br i1 %use, label %team, label %one", "one:",
        ]
        self.put(1, rows)
        self.put(2, span)
        self.put(3, "1")
        self.lines += [f"  call void @K.body(ptr %ctx, i64 0, i64 {rows}, i64 0)", "  br label %done", "team:"]
        tasks = self.segments(rows, span) if self.plan.outer is not None else rows
        self.put(1, tasks)
        self.lines += [
            "  call void @GOMP_parallel(ptr @K.par, ptr %ctx, i32 %max, i32 0)", "  br label %done", "done:",
            "  %status = load i32, ptr %ctx, align 8", "  ret i32 %status",
        ]

    def segments(self, rows: str, span: str) -> str:
        """Cut the vectorised range so that there are a few tasks for each thread."""
        lanes = self.plan.lanes
        wanted = self.op(f"shl i64 {self.op('zext i32 %max to i64')}, 2")
        cuts = self.ceiling(wanted, rows)
        more = self.op(f"add i64 {self.ceiling(span, cuts)}, {lanes - 1}")
        length = self.op(f"and i64 {more}, {-lanes}")
        number = self.ceiling(span, length)
        self.put(2, length)
        self.put(3, number)
        return self.op(f"mul i64 {rows}, {number}")

    def ceiling(self, a: str, b: str) -> str:
        """a / b, rounded up."""
        more = self.op(f"add i64 {a}, {b}")
        return self.op(f"udiv i64 {self.op(f'sub i64 {more}, 1')}, {b}")

    def team(self) -> list[str]:
        """What each thread of a team runs: an equal share of the tasks."""
        self.declares["omp_get_thread_num"] = "declare i32 @omp_get_thread_num()"
        self.declares["omp_get_num_threads"] = "declare i32 @omp_get_num_threads()"
        return [
            "define internal void @K.par(ptr %ctx) #0 {", "entry:",
            "  %at = getelementptr i64, ptr %ctx, i64 1", "  %tasks = load i64, ptr %at, align 8",
            "  %me = call i32 @omp_get_thread_num()", "  %all = call i32 @omp_get_num_threads()",
            "  %t = zext i32 %me to i64", "  %n = zext i32 %all to i64",
            "  %a = mul i64 %tasks, %t", "  %lo = udiv i64 %a, %n",
            "  %b = add i64 %a, %tasks", "  %hi = udiv i64 %b, %n",
            "  call void @K.body(ptr %ctx, i64 %lo, i64 %hi, i64 %t)", "  ret void", "}",
        ]
