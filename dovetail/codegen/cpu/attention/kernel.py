"""The forward pass: a task has a block of rows of a head, and goes through the keys that they see.

    void @K.body(ptr ctx, i64 lo, i64 hi, i64 part)       takes the next task until there is none
    i64 @K.task(ptr ctx, ptr work, i64 task)              0, or the number of a check that failed
"""

from __future__ import annotations

import hashlib

import torch

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.cpu import context, vecmath
from dovetail.codegen.cpu.attention.function import KernelFunction
from dovetail.codegen.cpu.attention.layouts import packed, unpacked, widened
from dovetail.codegen.cpu.attention.products import product
from dovetail.codegen.cpu.attention.task import RowsTask
from dovetail.codegen.cpu.attention.tiles import memory, tile_of
from dovetail.codegen.cpu.entry import EntryFunction
from dovetail.codegen.cpu.kernel import assembled
from dovetail.codegen.cpu.target import Processor, host
from dovetail.ir import launch
from dovetail.ir.attention import Attention, Strides
from dovetail.ir.launch import FIRST_FREE, TASKS
from dovetail.ir.template import Result, Template

COUNTER, BYTES, FIRST = FIRST_FREE, FIRST_FREE + 1, FIRST_FREE + 2
#: Picoseconds of a score: for each place of a head's width in both products, and besides.
_TERM, _SCORE = 10, 400

_BODY = f"""\
define internal void @K.body(ptr %ctx, i64 %lo, i64 %hi, i64 %part) #0 {{
entry:
  %bytes.at = getelementptr i64, ptr %ctx, i64 {BYTES}
  %bytes = load i64, ptr %bytes.at
  %counter = getelementptr i64, ptr %ctx, i64 {COUNTER}
  %tasks.at = getelementptr i64, ptr %ctx, i64 {TASKS}
  %tasks = load i64, ptr %tasks.at
  %memory = call ptr @malloc(i64 %bytes)
  %start = ptrtoint ptr %memory to i64
  %after = add i64 %start, 63
  %line = and i64 %after, -64
  %work = inttoptr i64 %line to ptr
  br label %next
next:
  %task = atomicrmw add ptr %counter, i64 1 monotonic
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %some, label %done
some:
  %status = call i64 @K.task(ptr %ctx, ptr %work, i64 %task)
  %good = icmp eq i64 %status, 0
  br i1 %good, label %next, label %bad
bad:
  store i64 %status, ptr %ctx
  br label %done
done:
  call void @free(ptr %memory)
  ret void
}}"""


class Forward:
    """Writes the module for one call of attention."""

    def __init__(self, attention: Attention, out: Strides, target: Processor | None) -> None:
        self.attention, self.out, self.target = attention, out, target or host()
        self.tile = tile_of(attention, self.target)
        self.signature = KernelSignature()
        self.declares: dict[str, str] = {}
        self.library = vecmath.Library(self.declares, native_scale=self.target.vector_bytes == 64)
        tables = [t.name for t in attention.scores.tables]
        for name in ("query", "key", "value", *tables, "out", "logarithms", "largest"):
            self.signature.pointer(name)

    def text(self) -> str:
        """The module, of a kernel called K."""
        task = RowsTask(self.attention, self.out, self.tile, self.signature, self.library, self.target).written()
        functions = [*self.helpers(), task]
        for each in functions:
            self.declares |= each.declares
        task.head = context.prologue(task.b.text(), self.signature, FIRST)
        lines = [line for each in functions for line in each.text()]
        return assembled(self.declares, self.library, [*lines, _BODY, *self.entry()])

    def helpers(self) -> list[KernelFunction]:
        """What a task calls."""
        dtype, halves = self.attention.dtype, self.target.halves
        made = [
            product("K.scores", self.tile, scaled=False), product("K.values", self.tile, scaled=True),
            packed("K.packed", self.tile, dtype, halves), unpacked("K.unpacked", self.tile, dtype, halves),
        ]  # fmt: skip
        narrow = dtype is not torch.float32
        return made + ([widened("K.widened", self.tile.lanes, dtype, halves)] if narrow else [])

    def entry(self) -> list[str]:
        """`i32 @K(ptr..., i64...)`."""
        a, columns, extent = self.attention, self.tile.columns, self.signature.extent
        made = EntryFunction(self.signature, self.declares, FIRST)
        blocks = made.op(f"udiv i64 {made.op(f'add i64 {extent(a.rows)}, {columns - 1}')}, {columns}")
        tasks = made.product([extent(a.batch), extent(a.heads), blocks])
        widths = made.op(f"add i64 {extent(a.width)}, {extent(a.value_width)}")
        one = made.op(f"add i64 {made.op(f'mul i64 {widths}, {_TERM}')}, {_SCORE}")
        work = made.product([tasks, str(columns), extent(a.keys), one])
        fixed, each = memory(self.tile, a.dtype)
        total = made.op(f"add i64 {made.op(f'mul i64 {widths}, {each}')}, {fixed}")
        context.declare_launch(self.declares)
        self.declares |= {"malloc": "declare ptr @malloc(i64)", "free": "declare void @free(ptr)"}
        call = f"  call void @{launch.LAUNCH}(ptr %ctx, ptr @K.body, i64 {tasks}, i64 1, i64 0, i64 {work})"
        start = [*context.store("%c", COUNTER, "0"), *context.store("%y", BYTES, total), call]
        return made.finish(start, 0)


def forward(
    attention: Attention,
    out: Strides,
    tables: dict[str, Strides],
    target: Processor | None = None,
) -> Template:
    """From query, key, value and the functions' tables: rows laid out as `out`, the logarithm of each one's sum and its
    largest score, both to base 2. `tables`: how what the functions read is laid out."""
    a = attention
    made = Forward(a, out, target)
    text = made.text()
    symbol = f"attention_forward_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    sizes = (a.batch, a.heads, a.rows)
    messages = tuple(text for _, text in (*a.scores.checks, *a.scores.mask_checks))
    plain = Result("float32", sizes, (a.heads * a.rows, a.rows, 1))
    results = (Result(str(a.dtype)[6:], (*sizes, a.value_width), out), plain, plain)
    strides = (a.query, a.key, a.value, *(tables[t.name] for t in a.scores.tables))
    text = text.replace("@K", f"@{symbol}")
    return Template(symbol, text, strides, results, tuple(made.signature.sizes), messages)
