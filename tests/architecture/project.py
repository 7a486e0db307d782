"""The package's source as data: modules, what each imports and where, functions and their extent."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "dovetail"
#: Where a statement, a handler or a case has others.
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@dataclass(frozen=True)
class Import:
    """One imported name, resolved: `from ..ir import loops` in a phase is `dovetail.ir.loops`."""

    target: str
    line: int
    in_function: bool
    typing_only: bool


class Module:
    """One source file of the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)

    @property
    def where(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def part(self) -> str:
        """The folder or file directly under the package that this module belongs to; "" for the package itself."""
        return (self.name.split(".") + [""])[1]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Of the tree, in the order of `ast.walk`."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def functions(self) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
        """Every function, nested ones too."""
        return tuple(n for n in self.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import statement's names, those inside functions and type-checking blocks marked."""
        return tuple(self._found(self.tree.body, in_function=False, typing_only=False))

    def _found(self, body: list[ast.AST], in_function: bool, typing_only: bool) -> Iterator[Import]:
        """In statements, and in those inside of them: an expression has none."""
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for target in self._targets(node):
                    yield Import(target, node.lineno, in_function, typing_only)
            inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            guarded = typing_only or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
            for name in BLOCKS:
                yield from self._found(getattr(node, name, ()), inside, guarded)

    def _targets(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        base = node.module or ""
        if node.level:
            anchor = self.name.split(".")
            keep = len(anchor) - node.level + (1 if self.is_package else 0)
            base = ".".join(anchor[:keep] + ([base] if base else []))
        return [f"{base}.{alias.name}" for alias in node.names]


@cache
def load() -> list[Module]:
    """Every module of the package, sorted by path; all tests have the same."""
    return [Module(path) for path in sorted((ROOT / PACKAGE).rglob("*.py"))]


def owner(target: str, names: frozenset[str]) -> str | None:
    """The module of ours that an import executes: the longest prefix of `target` that is one."""
    parts = target.split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in names:
            return ".".join(parts[:end])
    return None


def report(violations: list[str], rule: str) -> None:
    """Fail with one line a violation, and the rule in words."""
    if violations:
        raise AssertionError(rule + "\n  " + "\n  ".join(violations))
