"""How a Dim is written: common factors, remainders, a quotient or an excess alone, for the facts about sizes; and its
text, which Python's own parser reads back."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import Any

from dovetail.ir import dims
from dovetail.ir.dimatoms import term_text
from dovetail.ir.dims import Atom, Binary, Dim, FloorDiv, Max, Min, Mod, Poly, RuntimeIndex
from dovetail.ir.literals import integer


def content(dim: Poly) -> tuple[int, int]:
    """(the greatest common divisor of all coefficients but the constant's, the constant)."""
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    return gcd(*terms.values()), constant


def factors(dim: Dim) -> list[Dim]:
    """The atoms whose product `dim` is; nothing where it is none."""
    if isinstance(dim, int) or len(dim.terms) > 1 or dim.terms[0][1] != 1:
        return []
    return list(map(dims.of_atom, dict.fromkeys(dim.terms[0][0])))


def common_factors(dim: Poly) -> tuple[list[Dim], Dim]:
    """Atoms that every term of `dim` has, and what they multiply."""
    first, *others = (monomial for monomial, _ in dim.terms)
    shared: list[Atom] = []
    for atom in first if others else ():
        if all(m.count(atom) > shared.count(atom) for m in others):
            shared.append(atom)
    rest = {dims._remove(monomial, tuple(shared)): c for monomial, c in dim.terms}
    return list(map(dims.of_atom, shared)), dims._from_terms(rest) if shared else dim  # type: ignore[arg-type]


def multiples(dim: Poly, of: Poly) -> Iterator[Dim]:
    """Nonnegative factors, other than 1, by which `of` has a term in common with `dim`."""
    monomial, coefficient = of.terms[0]
    for mine, c in dim.terms:
        left, times = dims._remove(mine, monomial), c // coefficient
        if left is not None and times > 0 and (left or times > 1):
            factor = dims._monomial_dim(left) * times
            if dims.known_nonnegative(factor):
                yield factor


def quotient(dim: Poly) -> Dim | None:
    """a - n*b where `dim` is a // b - n: both are nonnegative or none is."""
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    atom = dims.sole_atom(dims._from_terms(terms))
    return atom.left + atom.right * constant if isinstance(atom, FloorDiv) else None


def excess(dim: Dim) -> Dim | None:
    """d where `dim` is max(d, 0)."""
    atom = dims.sole_atom(dim)
    if isinstance(atom, Max) and 0 in (atom.left, atom.right):
        return atom.right if atom.left == 0 else atom.left
    return None


def bounded(dim: Poly) -> tuple[Dim, ...]:
    """(a + d, b + d) where `dim` is min(a, b) + d, (d - a, d - b) where it is d - max(a, b): all are nonnegative or it
    is not."""
    for monomial, coefficient in dim.terms:
        atom: Any = monomial[0] if len(monomial) == 1 else None
        if (type(atom), coefficient) in ((Min, 1), (Max, -1)):
            rest = dim - dims.of_atom(atom) * coefficient
            return rest + atom.left * coefficient, rest + atom.right * coefficient
    return ()


def has_remainder(dim: Dim) -> bool:
    """Is what a division leaves one of its terms?"""
    return any(isinstance(atom, Mod) for monomial, _ in dims._terms(dim) for atom in monomial)


# ---------------------------------------------------------------- as text


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
    ast.FloorDiv: dims.floordiv, ast.Mod: dims.mod,
}
_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {"min": dims.minimum, "max": dims.maximum}


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
