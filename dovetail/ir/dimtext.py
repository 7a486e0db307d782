"""Size expressions as text, read back with Python's own parser."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from dovetail.ir.dims import Atom, Binary, Dim, RuntimeIndex, floordiv, maximum, minimum, mod, term_text
from dovetail.ir.literals import integer


def text(dim: Dim, of_value: Callable[[RuntimeIndex], str]) -> str:
    """`str(dim)` with each Value written by `of_value`."""
    if isinstance(dim, int):
        return integer(dim)
    terms = (term_text([_atom_text(a, of_value) for a in m], c) for m, c in dim.terms)
    return " + ".join(terms).replace("+ -", "- ")


def _atom_text(atom: Atom, of_value: Callable[[RuntimeIndex], str]) -> str:
    if isinstance(atom, RuntimeIndex):
        return of_value(atom)
    if not isinstance(atom, Binary):
        return repr(atom)
    return atom.form.format(f"({text(atom.left, of_value)})", f"({text(atom.right, of_value)})")


def parse(text: str, names: Mapping[str, Dim]) -> Dim:
    """Read what `str()` printed; `names` gives each symbol. Raises ValueError on anything else."""
    return from_ast(ast.parse(text, mode="eval").body, names, None)


_OPERATORS: dict[type, Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv, ast.Mod: mod,
}
_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {"min": minimum, "max": maximum}


def from_ast(node: ast.expr, names: Mapping[str, Dim], of_value: Callable[[ast.Call], Dim] | None) -> Dim:
    """The Dim that a Python expression spells; `of_value` reads calls of `value`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (from_ast(side, names, of_value) for side in (node.left, node.right))
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -from_ast(node.operand, names, of_value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "value" and of_value is not None:
            return of_value(node)
        if node.func.id in _FUNCTIONS:
            return _FUNCTIONS[node.func.id](*(from_ast(a, names, of_value) for a in node.args))
    raise ValueError(f"not a size expression: {ast.unparse(node)}")
