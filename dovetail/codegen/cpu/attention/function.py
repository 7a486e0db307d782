"""One function of a module, with loads and stores at places in memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dovetail.codegen.cpu import casts, types
from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.types import type_of


class KernelFunction:
    """`parameters` are its arguments by name, of types as LLVM writes them; `halves` as `Lanes` has it; `result`: the
    i64 that it gives, if any. `head` are lines in front of all others.
    """

    def __init__(self, name: str, parameters: Mapping[str, str], halves: bool = True, result: str = "") -> None:
        self.name, self.result = name, result
        self.head: list[str] = []
        self.declares: dict[str, str] = {}
        self.b = Builder(self.declares)
        self.w = Lanes(self.b, "", halves)
        self.parameters = {n: Val(f"%{n}", kind, 1, 0) for n, kind in parameters.items()}

    def number(self, value: int | Val) -> Val:
        """As i64."""
        return self.w.const(value, "i64") if isinstance(value, int) else value

    def at(
        self, pointer: Val, place: int | Val, step: int | Val = 1, dtype: torch.dtype = torch.float32
    ) -> Val:
        """So many elements behind the pointer: `place` times `step`."""
        count = self.number(place)
        if step != 1:
            count = self.w.binary("mul", count, self.number(step))
        if count.text == "0":
            return pointer
        kind = type_of(dtype).memory
        text = f"getelementptr {kind}, ptr {pointer.text}, {count.typed}"
        return self.b.shared(text, "ptr", 1, (pointer, count))

    def load(
        self,
        pointer: Val,
        lanes: int = 1,
        place: int = 0,
        dtype: torch.dtype = torch.float32,
        mask: Val | None = None,
    ) -> Val:
        """As float32, from memory that the function may write to; 0 where the mask is false."""
        at, kind = self.at(pointer, place, dtype=dtype), type_of(dtype)
        row = types.vector(kind.memory, lanes)
        text = f"load {row}, ptr {at.text}, align {kind.size}"
        if mask is not None:
            name = f"llvm.masked.load.{types.suffix(kind.memory, lanes)}.p0"
            self.b.declare(name, row, ["ptr", "i32", mask.type, row])
            text = f"call {row} @{name}(ptr {at.text}, i32 {kind.size}, {mask.typed}, {row} zeroinitializer)"
        return casts.cast(self.w, self.b.op(text, kind.memory, lanes), dtype, torch.float32)

    def store(
        self,
        value: Val,
        pointer: Val,
        place: int = 0,
        dtype: torch.dtype = torch.float32,
        mask: Val | None = None,
    ) -> None:
        """A float32, or several."""
        at, kind = self.at(pointer, place, dtype=dtype), type_of(dtype)
        value = casts.cast(self.w, value, torch.float32, dtype)
        if mask is None:
            return self.b.line(f"store {value.typed}, ptr {at.text}, align {kind.size}")
        name = f"llvm.masked.store.{types.suffix(kind.memory, value.lanes)}.p0"
        self.b.declare(name, "void", [value.type, "ptr", "i32", mask.type])
        self.b.line(f"call void @{name}({value.typed}, ptr {at.text}, i32 {kind.size}, {mask.typed})")

    def before(self, lanes: int, end: Val) -> Val:
        """Which lanes' numbers are below `end`."""
        numbers = Val(f"<{', '.join(f'i64 {k}' for k in range(lanes))}>", "i64", lanes, 0)
        return self.w.compare("icmp slt", numbers, self.w.splat(end, lanes))

    def call(self, name: str, *arguments: Val) -> None:
        """A function of the same module that gives nothing."""
        self.b.line(f"call void @{name}({', '.join(a.typed for a in arguments)})")

    def text(self) -> list[str]:
        """Its definition."""
        inside = ", ".join(f"{v.element} {v.text}" for v in self.parameters.values())
        kind, end = ("i64", f"ret i64 {self.result}") if self.result else ("void", "ret void")
        head = f"define internal {kind} @{self.name}({inside}) #0 {{"
        return [head, "entry:", *self.head, *self.b.text(), f"  {end}", "}"]
