"""Python's operators by their names: the native function of each, its special methods, its sign."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "and": operator.and_, "floordiv": operator.floordiv, "lshift": operator.lshift,
    "matmul": operator.matmul, "mul": operator.mul, "mod": operator.mod, "or": operator.or_, "pow": operator.pow,
    "rshift": operator.rshift, "sub": operator.sub, "truediv": operator.truediv, "xor": operator.xor,
    "iadd": operator.iadd, "iand": operator.iand, "ifloordiv": operator.ifloordiv, "ilshift": operator.ilshift,
    "imatmul": operator.imatmul, "imul": operator.imul, "imod": operator.imod, "ior": operator.ior,
    "ipow": operator.ipow, "irshift": operator.irshift, "isub": operator.isub, "itruediv": operator.itruediv,
    "ixor": operator.ixor,
}  # fmt: skip

IN_PLACE = frozenset(name for name in BINARY if name[0] == "i")

COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}

UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "neg": (operator.neg, "__neg__"),
    "pos": (operator.pos, "__pos__"),
    "invert": (operator.invert, "__invert__"),
}

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
