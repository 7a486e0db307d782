"""Make a failing program small: statements are deleted and unwrapped, expressions replaced by their parts."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

Test = Callable[[str], bool]


def reduced(source: str, fails: Test, attempts: int = 3000) -> str:
    """The smallest program found that still fails; `fails` gets source text that compiles."""
    tree = ast.parse(source)
    budget = [attempts]

    def still(candidate: ast.Module) -> bool:
        if budget[0] <= 0:
            return False
        budget[0] -= 1
        try:
            text = ast.unparse(ast.fix_missing_locations(candidate))
            compile(text, "<reduced>", "exec")
        except (SyntaxError, ValueError, TypeError):
            return False
        return fails(text)

    changed = True
    while changed and budget[0] > 0:
        changed = False
        for step in (_without_statements, _unwrapped, _simpler):
            tree, better = _descend(tree, step, still)
            changed |= better
    return ast.unparse(tree)


def _descend(
    tree: ast.Module, step: Callable[[ast.Module], Iterator[ast.Module]], still: Callable[[ast.Module], bool]
) -> tuple[ast.Module, bool]:
    """Take every improvement that a step offers, one after the other."""
    better, skip = False, 0
    while True:
        for k, candidate in enumerate(step(tree)):
            if k < skip:
                continue
            if still(candidate):
                tree, better, skip = candidate, True, k
                break
        else:
            return tree, better


def _bodies(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(getattr(node, name, None), list) and getattr(node, name):
                found.append((node, name))
    return found


def _edited(tree: ast.Module, index: int, edit: Callable[[list[ast.stmt]], list[ast.stmt]]) -> ast.Module:
    made = copy.deepcopy(tree)
    node, name = _bodies(made)[index]
    statements = edit(getattr(node, name))
    if not statements and name == "body":
        statements = [ast.Pass()]
    setattr(node, name, statements)
    return made


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    """Halves of blocks left out first, then single statements, last ones first."""
    for index, (node, name) in enumerate(_bodies(tree)):
        count = len(getattr(node, name))
        if count == 1 and isinstance(getattr(node, name)[0], ast.Pass):
            continue
        size = count
        while size >= 1:
            for start in range(count - size, -1, -size):
                yield _edited(tree, index, lambda s, a=start, b=start + size: s[:a] + s[b:])
            size //= 2


def _unwrapped(tree: ast.Module) -> Iterator[ast.Module]:
    """A compound statement replaced by one of its blocks."""
    for index, (node, name) in enumerate(_bodies(tree)):
        for k, statement in enumerate(getattr(node, name)):
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            for part in ("body", "orelse", "finalbody"):
                if isinstance(getattr(statement, part, None), list):
                    yield _edited(tree, index, lambda s, k=k, part=part: s[:k] + getattr(s[k], part) + s[k + 1 :])


def _simpler(tree: ast.Module) -> Iterator[ast.Module]:
    """An expression replaced by one of its operands."""
    count = sum(isinstance(n, ast.expr) for n in ast.walk(tree))
    for index in range(count):
        node = _expression(tree, index)
        for k in range(len(_operands(node))):
            made = copy.deepcopy(tree)
            target = _expression(made, index)
            replacement = _operands(target)[k]
            if _replace(made, target, replacement):
                yield made


def _expression(tree: ast.AST, index: int) -> ast.expr:
    return [n for n in ast.walk(tree) if isinstance(n, ast.expr)][index]


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        return []
    return [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]


def _replace(tree: ast.AST, old: ast.expr, new: ast.expr) -> bool:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is old:
                setattr(node, name, new)
                return True
            if isinstance(value, list) and any(v is old for v in value):
                setattr(node, name, [new if v is old else v for v in value])
                return True
    return False
