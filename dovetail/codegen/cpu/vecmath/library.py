"""Which functions there are, and the definitions that one kernel needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dovetail.codegen.cpu import types
from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.vecmath.formulas import Formulas
from dovetail.codegen.cpu.vecmath.single import SINGLE, Function, body, define, far, unless_far

#: Operator -> number of arguments. The C library's double function has the same name.
FUNCTIONS: dict[str, int] = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "pow": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2,
    "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "erf": 1, "erfc": 1,
}  # fmt: skip


def has(name: str) -> bool:
    return name in FUNCTIONS


class Library:
    """Collects definitions while a kernel is emitted; `declares` gets what they call."""

    def __init__(self, declares: dict[str, str], native_scale: bool) -> None:
        self.declares, self.native_scale = declares, native_scale
        self.definitions: dict[str, str] = {}

    def emit(self, builder: Builder, name: str, arguments: Sequence[Val]) -> Val:
        """The function's value, computed where its arguments are, but for those that need another function."""
        first = arguments[0]
        entry = SINGLE.get(name) if first.element == "float" else None
        if entry is None:
            return self.call(builder, self.from_c(name, first.element, first.lanes), arguments)
        text, result, declares = body(entry, first.lanes, self.native_scale)
        self.declares.update(declares)
        near = builder.pasted(text, result, first.element, arguments)
        if entry.limit is None:
            return near
        beyond = far(Formulas(builder, self.native_scale), entry, first)
        return unless_far(builder, beyond, near, self.beyond(entry, name, first))

    def call(self, builder: Builder, function: str, arguments: Sequence[Val]) -> Val:
        first, inside = arguments[0], ", ".join(a.typed for a in arguments)
        return builder.shared(f"call {first.type} @{function}({inside})", first.element, first.lanes, arguments)

    def beyond(self, entry: Function, name: str, x: Val) -> str:
        """A call of what computes the function of arguments that are far away."""
        function = self.from_c(name, x.element, x.lanes)
        if entry.beyond is not None:
            library, function = function, f"{name}.wide.{types.suffix(x.element, x.lanes)}"
            self.definitions[function], declares = _single(entry.beyond, function, library, x.lanes, self.native_scale)
            self.declares.update(declares)
        return f"call {x.type} @{function}({x.typed})"

    def from_c(self, name: str, element: str, lanes: int) -> str:
        """The C library's function, once a lane."""
        callee = c_name(name, element)
        self.declares[callee] = f"declare {element} @{callee}({', '.join([element] * FUNCTIONS[name])})"
        if lanes == 1:
            return callee
        function = f"{name}.lib.{types.suffix(element, lanes)}"
        self.definitions[function] = scalarized(name, element, lanes, function)
        return function

    def text(self) -> str:
        return "".join(self.definitions.values())


@cache
def _single(entry: Function, function: str, library: str, lanes: int, native: bool) -> tuple[str, dict[str, str]]:
    return define(entry, function, library, lanes, native)


def c_name(name: str, element: str) -> str:
    return f"{name}f" if element == "float" else name


@cache
def scalarized(name: str, element: str, lanes: int, function: str) -> str:
    """One call of the C library for each lane."""
    kind, count, callee = types.vector(element, lanes), FUNCTIONS[name], c_name(name, element)
    parameters = ", ".join(f"{kind} %x{k}" for k in range(count))
    elements = [f"  %e{k} = extractelement {kind} %x{k}, i64 %i\n" for k in range(count)]
    inside = ", ".join(f"{element} %e{k}" for k in range(count))
    return (
        f"define internal {kind} @{function}({parameters}) noinline {{\nentry:\n  br label %loop\nloop:\n"
        f"  %i = phi i64 [ 0, %entry ], [ %n, %loop ]\n"
        f"  %a = phi {kind} [ poison, %entry ], [ %b, %loop ]\n{''.join(elements)}"
        f"  %r = call {element} @{callee}({inside})\n"
        f"  %b = insertelement {kind} %a, {element} %r, i64 %i\n"
        f"  %n = add i64 %i, 1\n  %t = icmp ult i64 %n, {lanes}\n"
        f"  br i1 %t, label %loop, label %exit\nexit:\n  ret {kind} %b\n}}\n"
    )
