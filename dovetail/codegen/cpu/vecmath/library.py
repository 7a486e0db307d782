"""Which functions there are, and the definitions that one kernel needs."""

from __future__ import annotations

from functools import cache

from dovetail.codegen.cpu import types
from dovetail.codegen.cpu.vecmath.single import SINGLE, Function, define

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

    def use(self, name: str, element: str, lanes: int) -> str:
        """The function's name in the kernel's text."""
        function = f"{name}.{types.suffix(element, lanes)}"
        if function in self.definitions:
            return function
        entry = SINGLE.get(name) if element == "float" else None
        if entry is None:
            return self.from_c(name, element, lanes)
        far = self.from_c(name, element, lanes) if entry.limit is not None else ""
        if entry.beyond is not None:
            far = self.define(entry.beyond, f"{name}.wide.{types.suffix(element, lanes)}", far, lanes, "noinline")
        return self.define(entry, function, far, lanes, "alwaysinline")

    def define(self, entry: Function, function: str, far: str, lanes: int, inline: str) -> str:
        text, declares = _single(entry, function, far, lanes, self.native_scale, inline)
        self.definitions[function] = text
        self.declares.update(declares)
        return function

    def from_c(self, name: str, element: str, lanes: int) -> str:
        """The C library's function, once a lane."""
        function = f"{name}.lib.{types.suffix(element, lanes)}"
        self.definitions[function] = scalarized(name, element, lanes, function)
        callee = c_name(name, element)
        self.declares[callee] = f"declare {element} @{callee}({', '.join([element] * FUNCTIONS[name])})"
        return function

    def text(self) -> str:
        return "".join(self.definitions.values())


@cache
def _single(
    entry: Function, function: str, far: str, lanes: int, native: bool, inline: str
) -> tuple[str, dict[str, str]]:
    return define(entry, function, far, lanes, native, inline)


def c_name(name: str, element: str) -> str:
    return f"{name}f" if element == "float" else name


@cache
def scalarized(name: str, element: str, lanes: int, function: str) -> str:
    """One call of the C library for each lane."""
    kind, count, callee = types.vector(element, lanes), FUNCTIONS[name], c_name(name, element)
    parameters = ", ".join(f"{kind} %x{k}" for k in range(count))
    if lanes == 1:
        inside = ", ".join(f"{element} %x{k}" for k in range(count))
        return (
            f"define internal {kind} @{function}({parameters}) alwaysinline {{\n"
            f"  %r = call {element} @{callee}({inside})\n  ret {element} %r\n}}\n"
        )
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
