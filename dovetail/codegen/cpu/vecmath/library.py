"""Which functions there are, and the definitions that one kernel needs."""

from __future__ import annotations

from functools import cache

from dovetail.codegen.cpu import types
from dovetail.codegen.cpu.vecmath.single import SINGLE, define

#: Operator -> number of arguments. The C library's double function has the same name.
FUNCTIONS: dict[str, int] = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "pow": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2,
    "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "erf": 1, "erfc": 1,
}  # fmt: skip


def has(name: str) -> bool:
    return name in FUNCTIONS


class Library:
    """Collects definitions while a kernel is emitted; `text()` gives them all."""

    def __init__(self) -> None:
        self.used: dict[str, str] = {}

    def use(self, name: str, element: str, lanes: int) -> str:
        """The function's name in the kernel's text."""
        function = f"{name}.{types.suffix(element, lanes)}"
        if function not in self.used:
            self.used[function] = ""
            for needed in _needs(name, element):
                self.use_scalarized(needed, element, lanes)
            self.used[function] = _definition(name, element, lanes, function)
        return function

    def use_scalarized(self, name: str, element: str, lanes: int) -> None:
        function = f"{name}.lib.{types.suffix(element, lanes)}"
        self.used.setdefault(function, scalarized(name, element, lanes, function))

    def text(self) -> str:
        return "".join(self.used.values())

    def externals(self) -> list[str]:
        """Declarations of the C library's functions that the definitions call."""
        found = []
        for function in self.used:
            name, *rest = function.split(".")
            element = {"f32": "float", "f64": "double"}[rest[-1].removeprefix("v").lstrip("0123456789")]
            if rest[0] == "lib" or (name, element) not in SINGLE:
                found.append(external(name, element))
        return found


def _needs(name: str, element: str) -> tuple[str, ...]:
    entry = SINGLE.get((name, element))
    return () if entry is None else entry.needs


@cache
def _definition(name: str, element: str, lanes: int, function: str) -> str:
    if (name, element) in SINGLE:
        return define(SINGLE[name, element], function, element, lanes)
    return scalarized(name, element, lanes, function)


def external(name: str, element: str) -> str:
    inside = ", ".join([element] * FUNCTIONS[name])
    return f"declare {element} @{name}{'f' if element == 'float' else ''}({inside})"


@cache
def scalarized(name: str, element: str, lanes: int, function: str) -> str:
    """One call of the C library for each lane."""
    callee = f"{name}{'f' if element == 'float' else ''}"
    kind, count = types.vector(element, lanes), FUNCTIONS[name]
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
