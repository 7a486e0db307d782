"""A lane-generic instruction writer: the same calls emit scalar or vector code.

Every method takes values of equal lane counts or uniform ones, which it splats.
"""

from __future__ import annotations

from dovetail.codegen.cpu import types
from dovetail.codegen.cpu.builder import Builder, Val


class Lanes:
    """`flags` precede float operands: "contract " lets a multiply and an add become one fma.

    `halves`: the processor converts float16 itself.
    """

    def __init__(self, builder: Builder, flags: str, halves: bool = True) -> None:
        self.b, self.flags, self.halves = builder, flags, halves

    # ------------------------------------------------------------ shape

    def splat(self, value: Val, lanes: int) -> Val:
        """`value` in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, f"{value.lanes} lanes where {lanes} are wanted"
        if not value.text.startswith("%"):
            return Val(types.splat(value.text, value.element, lanes), value.element, lanes, value.depth)
        kind = f"<{lanes} x {value.element}>"
        one = self.b.shared(
            f"insertelement {kind} poison, {value.typed}, i64 0", value.element, lanes, [value]
        )
        return self.b.shared(
            f"shufflevector {kind} {one.text}, {kind} poison, <{lanes} x i32> zeroinitializer",
            value.element, lanes, [one],
        )

    def align(self, *values: Val) -> tuple[Val, ...]:
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def const(self, text: str | int, element: str) -> Val:
        return Val(str(text), element, 1, 0)

    def number(self, value: float, element: str) -> Val:
        """A floating point literal."""
        return Val(types.float_literal(value, element), element, 1, 0)

    # ------------------------------------------------------------ instructions

    def binary(self, opcode: str, a: Val, b: Val) -> Val:
        a, b = self.align(a, b)
        flags = self.flags if opcode in ("fadd", "fsub", "fmul") else ""
        return self.b.shared(f"{opcode} {flags}{a.type} {a.text}, {b.text}", a.element, a.lanes, (a, b))

    def compare(self, opcode: str, a: Val, b: Val) -> Val:
        """`opcode` is the whole of it: "icmp slt", "fcmp oeq"."""
        a, b = self.align(a, b)
        return self.b.shared(f"{opcode} {a.type} {a.text}, {b.text}", "i1", a.lanes, (a, b))

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        condition, a, b = self.align(condition, a, b)
        return self.b.shared(
            f"select {condition.typed}, {a.typed}, {b.typed}", a.element, a.lanes, (condition, a, b)
        )

    def convert(self, opcode: str, a: Val, element: str) -> Val:
        if a.element == element and opcode != "bitcast":
            return a
        to = types.vector(element, a.lanes)
        return self.b.shared(f"{opcode} {a.typed} to {to}", element, a.lanes, (a,))

    def freeze(self, a: Val) -> Val:
        return self.b.shared(f"freeze {a.typed}", a.element, a.lanes, (a,))

    def negate(self, a: Val) -> Val:
        return self.b.shared(f"fneg {a.typed}", a.element, a.lanes, (a,))

    def intrinsic(self, name: str, *arguments: Val) -> Val:
        """`llvm.<name>` overloaded on its first argument's type, which is also the result's."""
        values = self.align(*arguments)
        first = values[0]
        full = f"llvm.{name}.{types.suffix(first.element, first.lanes)}"
        return self.b.call(full, first.element, list(values), first.lanes)

    # ------------------------------------------------------------ shorthands

    def both(self, a: Val, b: Val) -> Val:
        """Logical and of i1."""
        if a.text == "true":
            return b
        return a if b.text == "true" else self.binary("and", a, b)

    def invert(self, a: Val) -> Val:
        return self.binary("xor", a, self.const(-1 if a.element != "i1" else "true", a.element))

    def is_nan(self, a: Val) -> Val:
        return self.compare("fcmp uno", a, a)

    def minmax(self, name: str, a: Val, b: Val, kind: str) -> Val:
        """`min` or `max`; NaN when either is. For equal operands the result is `b`."""
        predicate = {"float": "fcmp o", "int": "icmp s", "uint": "icmp u", "bool": "icmp u"}[kind]
        smaller = self.compare(f"{predicate}{'lt' if name == 'min' else 'gt'}", a, b)
        chosen = self.select(smaller, a, b)
        return self.select(self.is_nan(a), a, chosen) if kind == "float" else chosen
