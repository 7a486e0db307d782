"""Numbers made of sizes as plain data: a number, the name of a size, or an operation on these.

    math.sqrt(2 * n) + 1    ->    ("+", ("math.sqrt", ("*", 2, "n")), 1)
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

Expression = Any  # int | float | str | tuple[str, *Expression]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
INTEGER: dict[str, Callable[..., Any]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "int": int, "math.floor": math.floor, "math.ceil": math.ceil, "math.trunc": math.trunc, "math.gcd": math.gcd,
}  # fmt: skip
KEEPING: dict[str, Callable[..., Any]] = {  # the type of what they are given
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max, "abs": abs,
}  # fmt: skip
FLOATING: dict[str, Callable[..., Any]] = {
    "/": operator.truediv, "float": float,
    **{f"math.{name}": getattr(math, name) for name in (
        "sqrt exp log log2 log10 log1p expm1 sin cos tan tanh sinh cosh asin acos atan atan2 pow fabs erf hypot "
        "copysign fmod degrees radians"
    ).split()},
}  # fmt: skip
OPERATIONS: dict[str, Callable[..., Any]] = {
    **COMPARISONS, **INTEGER, **KEEPING, **FLOATING, "**": operator.pow, "round": round,
}  # fmt: skip
_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Div: "/", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Eq: "==", ast.NotEq: "!=", ast.GtE: ">=", ast.LtE: "<=", ast.Gt: ">", ast.Lt: "<",
}  # fmt: skip


class Unknown(Exception):
    """Text that is no expression of sizes."""


def of_text(text: str, names: Mapping[str, Expression]) -> Expression:
    """The expression that Python text spells. `names` has what stands in it, functions by their names here.

    Raises Unknown where there are other things in it.
    """
    return _of_node(ast.parse(text, mode="eval").body, names)


def _of_node(node: ast.AST, names: Mapping[str, Expression]) -> Expression:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _of_node(operand, names)
            return -inner if isinstance(inner, (int, float)) else ("*", -1, inner)
        case ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right]) if (
            type(sign) in _SIGNS
        ):
            return (_SIGNS[type(sign)], _of_node(left, names), _of_node(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            function = names.get(name, name.removeprefix("_"))
            if function in OPERATIONS:
                return (function, *(_of_node(arg, names) for arg in args))
    raise Unknown(ast.unparse(node))


def value(expression: Expression, sizes: Mapping[str, Any]) -> Any:
    """The number, of those of the sizes."""
    if isinstance(expression, str):
        return sizes[expression]
    if not isinstance(expression, tuple):
        return expression
    sign, *sides = expression
    return OPERATIONS[sign](*(value(side, sizes) for side in sides))


def kind(expression: Expression) -> type | None:
    """The type of the number, whatever the sizes are; None where that depends."""
    if not isinstance(expression, tuple):
        return int if isinstance(expression, str) else type(expression)
    sign, *sides = expression
    kinds = {kind(side) for side in sides}
    if sign in COMPARISONS:
        return bool
    if sign in INTEGER or sign == "round" and len(sides) == 1:
        return int
    if sign in FLOATING or sign not in ("min", "max") and kinds == {int, float}:
        return float
    if sign == "**" and kinds == {int}:
        if isinstance(sides[1], tuple):
            return None
        return int if isinstance(sides[1], str) or sides[1] >= 0 else float
    return kinds.pop() if len(kinds) == 1 else None


def names(expression: Expression) -> frozenset[str]:
    """The sizes that it mentions."""
    if isinstance(expression, str):
        return frozenset((expression,))
    sides = expression[1:] if isinstance(expression, tuple) else ()
    return frozenset().union(*map(names, sides))


def is_linear(expression: Expression) -> bool:
    """Is it `a * n + b`, with a > 0?"""
    if not isinstance(expression, tuple):
        return True
    sign, left, right = expression if len(expression) == 3 else ("", 0, 0)
    times = sign == "*" and any(isinstance(side, int) and side > 0 for side in (left, right))
    plus = sign in ("+", "-") and isinstance(right, int)
    return (times or plus) and is_linear(left) and is_linear(right)


def text(expression: Expression) -> str:
    """As it is written in Python."""
    if not isinstance(expression, (tuple, list)):
        return str(expression)
    sign, *sides = expression
    if sign[0].isalpha():
        return f"{sign}({', '.join(map(text, sides))})"
    return f" {sign} ".join(_inner(side, sign) for side in sides)


PLAIN = ("+", "-", "*", "/", "//", "%", "**")  # what comparisons bind less tightly than, as everybody knows


def _inner(expression: Expression, sign: str) -> str:
    if not isinstance(expression, (tuple, list)) or expression[0][0].isalpha():
        return text(expression)
    inner, outer = expression[0], sign
    plain = inner == outer and sign in "+*" or (inner, outer) == ("*", "+") or outer in COMPARISONS and inner in PLAIN
    return text(expression) if plain else f"({text(expression)})"
