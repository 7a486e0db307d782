"""Sizes as plain data: an integer, the name of a size, or an operator with two of these.

    2 * n + 1    ->    ("+", ("*", 2, "n"), 1)
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.ir.dims import Dim

Expression = Any  # int | str | tuple[str, Expression, Expression]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max,
}  # fmt: skip
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def of_dim(dim: Dim, names: Mapping[str, str]) -> Expression:
    """`names` are those of the symbols, by what they are called in the Dim."""
    return dim if isinstance(dim, int) else of_node(ast.parse(str(dim), mode="eval").body, names)


def of_node(node: ast.expr, names: Mapping[str, str]) -> Expression:
    """The expression that Python's own syntax tree spells."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        inner = of_node(node.operand, names)
        return -inner if isinstance(inner, int) else ("*", -1, inner)
    if isinstance(node, ast.Call):
        return (node.func.id, *(of_node(each, names) for each in node.args))  # type: ignore[attr-defined]
    assert isinstance(node, ast.BinOp)
    return (_SIGNS[type(node.op)], of_node(node.left, names), of_node(node.right, names))


def value(expression: Expression, sizes: Mapping[str, Any]) -> Any:
    """The number, of those of the sizes."""
    if isinstance(expression, str):
        return sizes[expression]
    if isinstance(expression, int):
        return expression
    sign, left, right = expression
    return OPERATORS[sign](value(left, sizes), value(right, sizes))


def names(expression: Expression) -> frozenset[str]:
    """The sizes that it mentions."""
    if isinstance(expression, str):
        return frozenset((expression,))
    sides = () if isinstance(expression, int) else expression[1:]
    return frozenset().union(*map(names, sides))


def is_linear(expression: Expression) -> bool:
    """Is it `a * n + b`, with a > 0?"""
    if not isinstance(expression, tuple):
        return True
    sign, left, right = expression
    times = sign == "*" and any(isinstance(side, int) and side > 0 for side in (left, right))
    plus = sign in ("+", "-") and isinstance(right, int)
    return (times or plus) and is_linear(left) and is_linear(right)


def text(expression: Expression) -> str:
    """As it is written in Python."""
    if not isinstance(expression, (tuple, list)):
        return str(expression)
    sign, left, right = expression
    if sign in ("min", "max"):
        return f"{sign}({text(left)}, {text(right)})"
    return f"{_inner(left, sign)} {sign} {_inner(right, sign)}"


def _inner(expression: Expression, sign: str) -> str:
    atom = not isinstance(expression, (tuple, list)) or expression[0] in ("min", "max", sign if sign in "+*" else "")
    return text(expression) if atom or sign == "+" and expression[0] == "*" else f"({text(expression)})"
