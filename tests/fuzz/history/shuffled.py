"""Import the package so that it goes through every set in a random order.

The order of a set is that of its members' hashes: addresses, and texts' hashes, which differ from process to process. A
stage that lets it show gives another text one day in a hundred; with this, the next time. Call `install` before the
first import of the package.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import marshal
import random
import sys
from pathlib import Path
from typing import Any

PACKAGE = "dovetail"
NAME = "__in_any_order__"
#: Functions, by their last name, that go through what they are given.
WALKERS = frozenset((
    "list", "tuple", "iter", "enumerate", "zip", "map", "filter", "sorted", "min", "max", "reduce", "fromkeys", "join",
    "extend", "chain", "from_iterable", "deque", "reversed", "dict", "islice", "product", "next",
))  # fmt: skip


class _Loops(ast.NodeTransformer):
    """`for x in y` becomes `for x in __in_any_order__(y)`, and so does whatever else goes through y."""

    def shuffled(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.copy_location(ast.Starred(self.shuffled(node.value), node.ctx), node)
        name = ast.copy_location(ast.Name(NAME, ast.Load()), node)
        return ast.copy_location(ast.Call(name, [node], []), node)

    def visit_For(self, node: ast.For | ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = self.shuffled(node.iter)
        return node

    visit_comprehension = visit_For

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.targets[0], (ast.Tuple, ast.List)):
            node.value = self.shuffled(node.value)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        self.generic_visit(node)
        node.value = self.shuffled(node.value)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self.shuffled(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if name in WALKERS:
            node.args = [a if isinstance(a, ast.Starred) else self.shuffled(a) for a in node.args]
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    kept: Path  # what processes have rewritten: the same for every seed

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        tree = ast.fix_missing_locations(_Loops().visit(ast.parse(data, path)))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> Any:  # never what lies in __pycache__
        path, kept = self.get_filename(fullname), self.kept / f"{fullname}.code"
        if not kept.exists():
            code = self.source_to_code(self.get_data(path), path)
            kept.write_bytes(marshal.dumps(code))
        return marshal.loads(kept.read_bytes())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.split(".")[0] != PACKAGE:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.origin is not None and found.origin.endswith(".py"):
            found.loader = _Loader(fullname, found.origin)
        return found


def install(seed: int, folder: Path) -> None:
    """From now on, modules of the package go through sets in an order drawn from `seed`.

    Processes with the same sources, one after another, share what is kept in `folder`.
    """
    assert PACKAGE not in sys.modules, "the package is imported already"
    chosen = random.Random(seed)

    def in_any_order(given: Any) -> Any:
        if type(given) is not set and type(given) is not frozenset:
            return given
        # Sorted first, where that is possible, so that a seed says it all.
        members = sorted(given, key=_text)
        chosen.shuffle(members)
        return members

    setattr(builtins, NAME, in_any_order)
    _Loader.kept = folder
    sys.meta_path.insert(0, _Finder())


def _text(member: Any) -> str:
    return repr(member) if isinstance(member, (str, int, tuple)) else type(member).__name__
