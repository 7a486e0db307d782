"""What an expression costs to compute again, in units of one vector addition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.ir.devices import traits
from dovetail.ir.dims import Symbol
from dovetail.ir.launch import WINDOW
from dovetail.ir.liveness import nodes
from dovetail.ir.loops import Const, Expr, Index, Load, Local, Op, Param

#: Relative throughput on current CPUs and GPUs; every other operator counts 1.
EXPENSIVE: dict[str, int] = {
    "div": 4, "sqrt": 6, "rsqrt": 8, "floordiv": 10, "truncdiv": 10, "remainder": 10, "fmod": 10,
    "exp": 10, "exp2": 10, "expm1": 14, "log": 12, "log2": 12, "log10": 12, "log1p": 14, "pow": 30,
    "sin": 14, "cos": 14, "tan": 20, "asin": 20, "acos": 20, "atan": 20, "atan2": 24, "sinh": 20,
    "cosh": 20, "tanh": 16, "asinh": 24, "acosh": 24, "atanh": 24, "erf": 16, "erfc": 20, "philox": 50,
}

#: At most this much is computed twice rather than kept in memory.
CHEAP = 5


def weight(node: Expr) -> int:
    """The cost of one node by itself; loads count as one."""
    if isinstance(node, (Const, Index, Local, Param)):
        return 0
    return EXPENSIVE.get(node.name, 1) if isinstance(node, Op) else 1


def cost(expr: Expr, along: Iterable[Symbol] | None = None) -> int:
    """The cost of an expression, its shared parts counted once; `along`: of what differs along these ranges alone.

    What is read for each row or column is read once and stays at hand."""
    ranges = None if along is None else frozenset(along)
    small = {load for load in expr.loads if not is_big(load, expr)}
    return sum(weight(n) for n in nodes([expr]) if n not in small and (ranges is None or n.symbols & ranges))


def is_big(load: Load, expr: Expr) -> bool:
    """Are as many elements loaded as the expression has?"""
    return bool(load.symbols) and load.symbols >= expr.symbols


def big(expr: Expr) -> list[Load]:
    """Distinct loads of as many elements as the expression has; a number for each row or column is small."""
    return [load for load in expr.loads if is_big(load, expr)]


def big_loads(expr: Expr) -> int:
    return len(big(expr))


def is_window(expr: Expr) -> bool:
    """Does it read so many elements of one tensor that a thread which holds part of a row has no registers for them?"""
    if len(expr.loads) <= WINDOW:
        return False
    found = Counter(load.buffer for load in big(expr)).most_common(1)
    return any(count > WINDOW and traits(buffer.device).holds_rows for buffer, count in found)
