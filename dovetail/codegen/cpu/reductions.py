"""Accumulators of each Reduce kind: start, step, combine, fold lanes to one value.

Long float32 sums are blocked: float32 partial sums of a bounded number of terms are added up in
float64, so the error does not grow with the length (pairwise summation's bound, at less cost).
"""

from __future__ import annotations

import torch

from dovetail.codegen.cpu import casts, types
from dovetail.codegen.cpu.builder import Val, vector_text
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.types import type_of
from dovetail.errors import InternalError
from dovetail.ir.loops import Reduce
from dovetail.ir.records import dataclass
from dovetail.ir.scalar import identity

#: Terms of one lane's float32 partial sum, at most.
BLOCK_STEPS = 64


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One Reduce's running value in `lanes` lanes: `parts` are (LLVM scalar type, initial literal)."""

    reduce: Reduce
    lanes: int
    blocked: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that values are accumulated in; float32 for half types."""
        own = self.reduce.value.dtype if self.reduce.kind.startswith("arg") else self.reduce.dtype
        return torch.float32 if type_of(own).kind == "half" else own

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        kind = self.reduce.kind
        start = types.literal(identity(kind, self.dtype), self.dtype)
        if kind.startswith("arg"):
            return (type_of(self.dtype).register, start), ("i64", "0")
        return ((type_of(self.dtype).register, start),)

    @property
    def outer_parts(self) -> tuple[tuple[str, str], ...]:
        """The state between blocks."""
        return (("double", "0x0000000000000000"),) if self.blocked else self.parts

    def carried(self, outer: bool) -> list[tuple[str, str]]:
        """Loop-carried types and their initial values."""
        parts = self.outer_parts if outer else self.parts
        return [(vector_text(e, self.lanes), types.splat(v, e, self.lanes)) for e, v in parts]

    def wrap(self, names: list[str], depth: int, outer: bool) -> list[Val]:
        parts = self.outer_parts if outer else self.parts
        return [Val(n, e, self.lanes, depth) for n, (e, _) in zip(names, parts, strict=True)]


class Reducer:
    """Emits accumulator updates. `w` must not contract in ways that change sums: it adds only."""

    def __init__(self, w: Lanes) -> None:
        self.w, self.b = w, w.b

    def step(self, acc: Accumulator, state: list[Val], value: Val, place: Val | None, mask: Val | None) -> list[Val]:
        """`state` with `value` taken in, in the lanes of `mask`."""
        w, kind = self.w, acc.reduce.kind
        value = w.splat(self._accept(acc, value), acc.lanes)
        if kind.startswith("arg"):
            assert place is not None
            return self._step_argument(acc, state, value, w.splat(place, acc.lanes), mask)
        following = self.merge(kind, acc.dtype, state[0], value)
        return [following if mask is None else w.select(mask, following, state[0])]

    def _accept(self, acc: Accumulator, value: Val) -> Val:
        source = acc.reduce.value.dtype
        return casts.cast(self.w, value, source, acc.dtype)

    def merge(self, kind: str, dtype: torch.dtype, a: Val, b: Val) -> Val:
        return combine(self.w, kind, type_of(dtype).kind, a, b)

    def _step_argument(self, acc: Accumulator, state: list[Val], value: Val, place: Val, mask: Val | None) -> list[Val]:
        """Later positions win only when strictly better, so the first extreme stays."""
        w, t = self.w, type_of(acc.dtype)
        smaller = acc.reduce.kind == "argmin"
        if t.kind == "float":
            better = w.compare(f"fcmp u{'lt' if smaller else 'gt'}", value, state[0])
            better = w.both(better, w.compare("fcmp ord", state[0], state[0]))
        else:
            sign = "s" if t.kind == "int" else "u"
            better = w.compare(f"icmp {sign}{'lt' if smaller else 'gt'}", value, state[0])
        if mask is not None:
            better = w.both(better, mask)
        return [w.select(better, value, state[0]), w.select(better, place, state[1])]

    def join(self, acc: Accumulator, a: list[Val], b: list[Val]) -> list[Val]:
        """Two states of the outer kind into one; of equal extremes the lower position."""
        if acc.blocked:
            return [self.w.binary("fadd", a[0], b[0])]
        if not acc.reduce.kind.startswith("arg"):
            return [self.merge(acc.reduce.kind, acc.dtype, a[0], b[0])]
        w, t = self.w, type_of(acc.dtype)
        order = "lt" if acc.reduce.kind == "argmin" else "gt"
        sign = {"float": "fcmp o", "int": "icmp s", "uint": "icmp u", "bool": "icmp u"}[t.kind]
        better = w.compare(f"{sign}{order}", b[0], a[0])
        equal = w.compare("fcmp oeq" if t.kind == "float" else "icmp eq", a[0], b[0])
        if t.kind == "float":
            nan_a, nan_b = w.is_nan(a[0]), w.is_nan(b[0])
            better = w.binary("or", better, w.both(nan_b, w.invert(nan_a)))
            equal = w.binary("or", equal, w.both(nan_a, nan_b))
        better = w.binary("or", better, w.both(equal, w.compare("icmp slt", b[1], a[1])))
        return [w.select(better, b[0], a[0]), w.select(better, b[1], a[1])]

    def flush(self, acc: Accumulator, outer: list[Val], inner: list[Val]) -> list[Val]:
        """Add a block's partial sums to the state between blocks."""
        assert acc.blocked
        return [self.w.binary("fadd", outer[0], self.w.convert("fpext", inner[0], "double"))]

    def fold(self, acc: Accumulator, state: list[Val]) -> list[Val]:
        """All lanes into one, halving."""
        lanes = acc.lanes
        while lanes > 1:
            low = [self._half(v, lanes, 0) for v in state]
            high = [self._half(v, lanes, lanes // 2) for v in state]
            state, lanes = self.join(acc, low, high), lanes // 2
        return state

    def _half(self, value: Val, lanes: int, start: int) -> Val:
        chosen = ", ".join(f"i32 {k}" for k in range(start, start + lanes // 2))
        kind = f"<{lanes} x {value.element}>"
        if lanes == 2:
            return self.b.op(f"extractelement {kind} {value.text}, i64 {start}", value.element, 1)
        return self.b.op(
            f"shufflevector {kind} {value.text}, {kind} poison, <{lanes // 2} x i32> <{chosen}>",
            value.element, lanes // 2,
        )

    def result(self, acc: Accumulator, state: list[Val]) -> Val:
        """The value of the Reduce's Local."""
        if acc.reduce.kind.startswith("arg"):
            return casts.cast(self.w, state[1], torch.int64, acc.reduce.dtype)
        total = self.w.convert("fptrunc", state[0], "float") if acc.blocked else state[0]
        return casts.cast(self.w, total, acc.dtype, acc.reduce.dtype)


def combine(w: Lanes, kind: str, number: str, a: Val, b: Val) -> Val:
    """One value of two, for every kind but the arguments of extremes."""
    if kind in ("min", "max"):
        return w.minmax(kind, a, b, number)
    opcodes = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}
    if kind not in opcodes:
        raise InternalError("codegen", f"unknown reduction {kind}")
    opcode = opcodes[kind]
    return w.binary(f"f{opcode}" if number == "float" else opcode, a, b)
