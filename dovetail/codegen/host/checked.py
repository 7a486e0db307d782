"""The host program under `check_kernels`: it tells kernels what memory they have, and looks at every tensor in between.

before:  k12(p_a0, P + 64, 128)  # add_0
after:   poison(block.base, 64, 128, float32)                       what nobody has written yet is NaN
         report = begin(1, 4, device_cpu)
         k12(p_a0, report[0].data_ptr(), P + 64, 128, 0, elements(a0, 4), 0, 128)  # add_0
         inspect(report[0], watched, (0, elements(a0, 4), 0, 128, ))

before:  mm = mm_(a0, t)
after:   promised(a0, (8, 8, ), (8, 1, ), promise)                  as the kernels that made and read it have it
         promised(t, (8, 8, ), (1, 8, ), promise_1)
         mm = mm_(a0, t)

The functions that it calls are in `runtime/call/checked.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.codegen.host.library_calls import OUT_VARIANTS
from dovetail.codegen.host.program import Host
from dovetail.errors import Location
from dovetail.ir.checks import Promise, Watched
from dovetail.ir.dims import floordiv, known_nonnegative
from dovetail.ir.kernel import REPORT, HostProgram, Kernel, Limit, MemoryPlan
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Batch, Buffer, Group, Item, LibraryCall, Program
from dovetail.ops.table import row_of


def generate(
    program: Program, kernels: Mapping[str, Kernel], memory: MemoryPlan, consumes: bool = False
) -> HostProgram:
    """As `host.generate` does, of kernels that were generated to be checked."""
    return _Checked(program, kernels, memory, consumes).build()


class _Checked(Host):
    fails = "failed and failed > 0"

    def __init__(self, program: Program, kernels: Mapping[str, Kernel], memory: MemoryPlan, consumes: bool) -> None:
        super().__init__(program, kernels, memory, consumes)
        self.begun: set[str] = set()  # buffers that something has been written to, or that are not ours
        self.given_to = 0  # groups of the launch that is being written
        calls = [item for item in program.items if isinstance(item, LibraryCall)]
        hidden = (call.results[k] for call in calls for k in row_of(call.operator).opaque)
        self.opaque = program.opaque | {buffer.name for buffer in hidden if buffer is not None}
        for buffer in program.inputs:
            self.promise(buffer, "an input of the program", ())

    # ------------------------------------------------------------ kernels

    def launch(self, item: Group | Batch, groups: tuple[Group, ...]) -> None:
        kernels = [self.kernels[group.name] for group in groups]
        if not kernels[0].accesses:
            super().launch(item, groups)
            return
        device = self.constant(kernels[0].accesses[0].buffer.device, "device")
        self.given_to = 0
        self.body.append(f"report = begin({len(groups)}, {len(kernels[0].accesses)}, {device})")
        super().launch(item, groups)
        for number, (group, kernel) in enumerate(zip(groups, kernels, strict=True)):
            watched = Watched(kernel.symbol, group.name, kernel.accesses, self.lines(group))
            limits = "".join(f"{text}, " for access in kernel.accesses for text in self.extent(access.buffer))
            self.body.append(f"inspect(report[{number}], {self.constant(watched, 'watched')}, ({limits}))")

    def allocate(self, buffer: Buffer) -> None:
        super().allocate(buffer)
        self.poison(buffer)

    def poison(self, buffer: Buffer) -> None:
        """Before the first write: memory of our own holds nothing that could pass for a result."""
        if buffer.name in self.begun or buffer.name in self.roots or buffer.kind == "input":
            return
        self.begun.add(buffer.name)
        if buffer.name in self.offsets:
            dtype = self.constant(buffer.dtype, str(buffer.dtype).removeprefix("torch."))
            self.body.append(f"poison(block.base, {self.offsets[buffer.name]}, {self.size(buffer.span)}, {dtype})")
        else:
            self.body.append(f"poison_tensor({self.tensor(buffer)})")

    def given(self, kernel: Kernel) -> list[str]:
        """Pointers, the report's among them, then sizes, each limit at its place."""
        pointers = [self.report() if b.kind == REPORT else self.pointer(b) for b in kernel.pointers]
        self.given_to += 1
        return pointers + [self.limit(kernel, s) if isinstance(s, Limit) else self.size(s) for s in kernel.sizes]

    def report(self) -> str:
        return f"report[{self.given_to}].data_ptr()"

    def limit(self, kernel: Kernel, limit: Limit) -> str:
        return self.extent(kernel.pointers[limit.pointer])[limit.end]

    def extent(self, buffer: Buffer) -> tuple[str, str]:
        """First element and one past the last of the memory that the buffer's pointer leads to."""
        base, itemsize = buffer, buffer.dtype.itemsize
        while base.name in self.view_of:
            base = self.view_of[base.name].base
        if base.kind == "local":
            return "0", self.size(base.numel)
        if base.name in self.offsets:
            return "0", self.size(floordiv(base.span * base.dtype.itemsize, itemsize))
        tensor = f"({self.tensors[base.name]}, {itemsize})"
        rest = base.span * base.dtype.itemsize - buffer.span * itemsize
        if known_nonnegative(buffer.offset) and known_nonnegative(rest):
            return "0", f"elements{tensor}"
        return f"-elements_before{tensor}", f"elements_of_storage{tensor}"

    # ------------------------------------------------------------ library calls

    def library(self, call: LibraryCall) -> None:
        results = [b for b in call.results if b is not None]
        if call.operator in OUT_VARIANTS and len(results) == 1 and results[0].name in self.offsets:
            self.poison(results[0])
        self.begun |= writes(call).keys()
        for buffer in reads(call).values():
            self.promise(buffer, f"given to {call.operator}", self.lines(call))
        super().library(call)

    def check(self, buffer: Buffer, operator: str, may_be_none: bool) -> None:
        super().check(buffer, operator, may_be_none)
        self.promise(buffer, f"what {operator} returned", self.program.lines.get(buffer.name, ()))

    def promise(self, buffer: Buffer, role: str, stack: tuple[Location, ...]) -> None:
        if buffer.name in self.opaque:
            return
        promise = self.constant(Promise(role, buffer.name, buffer.dtype, buffer.device, stack), "promise")
        sizes, strides = self.listed(buffer.sizes), self.listed(buffer.strides)
        self.body.append(f"promised({self.tensor(buffer)}, {sizes}, {strides}, {promise})")

    # ------------------------------------------------------------ the user's lines

    def lines(self, item: Item) -> tuple[Location, ...]:
        """Where in the program the first of the results that has a place was asked for."""
        known: Any = self.program.lines
        return next((known[name] for name in (*writes(item), *reads(item)) if name in known), ())
