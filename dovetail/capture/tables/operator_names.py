"""Python's operators by their names: the sign of each, its native function, its special methods."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip

IN_PLACE = frozenset(f"i{name}" for name in SIGNS)

#: `left op right`; "iadd" is `left += right`.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, f"{name}_" if name in ("and", "or") else name) for name in (*SIGNS, *sorted(IN_PLACE))
}

FIELD = frozenset(("add", "sub", "mul", "truediv"))
ARITHMETIC = FIELD | {"floordiv", "mod"}

#: Sign → the function, its special method, and the one that the other operand is asked for.
COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
COMPARISONS: dict[Any, str] = {function: sign for sign, (function, _, _) in COMPARE.items()}

#: Name → the function, its special method and its sign.
UNARY: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "neg": (operator.neg, "__neg__", "-"),
    "pos": (operator.pos, "__pos__", "+"),
    "invert": (operator.invert, "__invert__", "~"),
}


def out_of_place(name: str) -> str:
    """The operator's name without the `i` of its form in place."""
    return name[1:] if name in IN_PLACE else name
