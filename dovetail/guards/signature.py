"""A captured function's residual program taken apart: its parameters and its body."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.errors import InternalError
from dovetail.ir.records import dataclass
from dovetail.ir.stores import remembered


@dataclass(frozen=True)
class ResidualText:
    """`parameters` is the text between the parentheses; `names` all that the program mentions."""

    parameters: str
    names: frozenset[str]
    body: tuple[str, ...]
    prelude: str

    def function(self, body: list[str], name: str, namespace: dict[str, Any]) -> tuple[Callable[..., Any], str]:
        """A function with these parameters, and its text. `namespace` is its globals."""
        text = f"def {name}({self.parameters}):\n" + "".join(f"    {line}\n" for line in body)
        exec(compile(text, f"<dovetail {name}>", "exec"), namespace)
        return namespace[name], text


def root_function(fn: Any) -> Any:
    """The Python function whose globals and cells `fn` uses, or None."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    found = getattr(fn, "__func__", fn)
    if not inspect.isfunction(found):
        found = getattr(type(fn), "forward", None) or type(fn).__call__
    return found if inspect.isfunction(found) else None


@remembered(16)
def take_apart(text: str) -> ResidualText:
    """Parse the text of `residual`."""
    tree = ast.parse(text)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "residual"]
    if len(found) != 1:
        raise InternalError("guards", "the residual text must define exactly one function `residual`")
    arguments = found[0].args
    used = _NAME.findall(text)  # and words in its texts
    lines = text.split("\n")[found[0].body[0].lineno - 1 : found[0].end_lineno]
    body = tuple(line.removeprefix("    ") for line in lines)
    prelude = "\n".join(ast.unparse(node) for node in tree.body if node is not found[0])
    return ResidualText(ast.unparse(arguments), frozenset(used), body, prelude)


def without_inputs(body: Sequence[str]) -> list[str]:
    """The lines of a residual that calls its graph without arguments, and computes no numbers for these."""
    tree = ast.parse("\n".join(body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "graph":
            node.args.clear()
    before = 0
    while before != len(tree.body):
        before = len(tree.body)
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        tree.body = [line for line in tree.body if not _NUMBER.match(_assigned(line)) or _assigned(line) in used]
    return ast.unparse(tree).split("\n")


_NUMBER = re.compile(r"_n\d+$")
_NAME = re.compile(r"[^\W\d]\w*")


def _assigned(line: ast.stmt) -> str:
    """The variable that is assigned, if the line does nothing else."""
    target = line.targets[0] if isinstance(line, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""
