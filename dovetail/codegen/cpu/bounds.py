"""Instructions that compare an access with its buffer's extent before it happens; only where kernels are checked.

    %outside = first byte below the memory's first, or not below its end, in a lane that is not masked off
    br i1 %outside, label %bad, label %ok
    bad:  the report's word for such accesses = the least place among them;  leave with status FAILED
    ok:   the access

What bounds a pointer's memory are arguments of the kernel, which the host finds out from the memory itself.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.indices import Indices
from dovetail.codegen.cpu.types import splat, suffix, type_of
from dovetail.ir.kernel import REPORT, Limit
from dovetail.ir.loops import Buffer
from dovetail.ir.records import dataclass

FAILED = -1


@dataclass(frozen=True)
class Bounds:
    """The checks of one function. `words` are the kernel's accesses, by buffer and whether they store, in order."""

    indices: Indices
    words: dict[tuple[str, bool], int]
    on_fail: Callable[[int], list[str]]

    def check(
        self, buffer: Buffer, address: Val, lanes: int, mask: Val | None, stores: bool, row: tuple[Val, int] | None
    ) -> None:
        """`address` is that of every lane's element, or of the first one's, which the others follow; `row` is where a
        buffer that is local to the group begins, and how many numbers its elements have."""
        w, signature, size = self.indices.w, self.indices.signature, type_of(buffer.dtype).size
        base = Val(signature.pointer(buffer.name), "ptr", 1, 0) if row is None else row[0]
        if row is None:
            number = int(base.text.removeprefix("%p"))
            limits = [Val(signature.number(Limit(number, end)), "i64", 1, 0) for end in (False, True)]
        else:
            limits = [w.const(0, "i64"), w.binary("mul", self.indices.extent(buffer.numel), w.const(row[1], "i64"))]
        start = w.convert("ptrtoint", base, "i64")
        first, end = (w.binary("add", start, w.binary("mul", n, w.const(size, "i64"))) for n in limits)
        places = w.convert("ptrtoint", address, "i64")
        if places.lanes < lanes:
            steps = ", ".join(f"i64 {k * size}" for k in range(lanes))
            places = w.binary("add", places, Val(f"<{steps}>", "i64", lanes, 0))
        outside = w.binary("or", w.compare("icmp slt", places, first), w.compare("icmp sge", places, end))
        if mask is not None:
            outside = w.select(mask, outside, w.const("false", "i1"))  # masked off, it may be anything, even poison
        self.leave_if(outside, places, start, size, self.words.setdefault((buffer.name, stores), len(self.words)))

    def leave_if(self, outside: Val, places: Val, start: Val, size: int, word: int) -> None:
        b = self.indices.b
        tag, wrong, place = b.fresh("bounds"), outside.text, places.text
        lines = [f"{tag}.bad:"]
        if outside.lanes > 1:
            found, least = (f"llvm.vector.reduce.{what}" for what in (
                f"or.{suffix('i1', outside.lanes)}", f"smin.{suffix('i64', outside.lanes)}"))  # fmt: skip
            places = self.indices.w.splat(places, outside.lanes)
            b.declare(found, "i1", [outside.type])
            b.declare(least, "i64", [places.type])
            wrong = b.op(f"call i1 @{found}({outside.typed})", "i1", 1).text
            none = f"{places.type} {splat(str(2**63 - 1), 'i64', outside.lanes)}"
            lines.append(f"  %{tag}.s = select {outside.typed}, {places.typed}, {none}")
            lines.append(f"  %{tag}.m = call i64 @{least}({places.type} %{tag}.s)")
            place = f"%{tag}.m"
        lines += [
            f"  %{tag}.d = sub i64 {place}, {start.text}", f"  %{tag}.p = sdiv i64 %{tag}.d, {size}",
            f"  %{tag}.w = getelementptr i64, ptr {self.indices.signature.pointer(REPORT)}, i64 {word}",
            f"  store atomic i64 %{tag}.p, ptr %{tag}.w monotonic, align 8", *self.on_fail(FAILED),
        ]  # fmt: skip
        b.line(f"br i1 {wrong}, label %{tag}.bad, label %{tag}.ok")
        b.scope.lines += lines
        b.label(f"{tag}.ok")
