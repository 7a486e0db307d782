"""Small files, small functions, and the habits that keep them readable."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

from .limits import (
    AVERAGE_DENSITY,
    BROAD_HANDLERS,
    COMPLEX_FUNCTIONS,
    COMPLEXITY,
    DENSITY,
    FILE_LINES,
    FUNCTION_LINES,
    LONG_FILES,
    LONG_FUNCTIONS,
    LONG_LADDERS,
    RETURN_LADDER,
)
from .project import Module, load, report

MODULES = load()
LONGEST_CHAIN = 5


def test_files_are_short() -> None:
    bad = []
    for module in MODULES:
        limit = LONG_FILES.get(module.where, (FILE_LINES, ""))[0]
        if module.lines > limit:
            bad.append(f"{module.where}: {module.lines} lines, at most {limit}")
    report(bad, "Split the file by purpose, or name it in tests/architecture/limits.py with a reason.")


def test_functions_are_short() -> None:
    bad = []
    for module in MODULES:
        for function in module.functions:
            length = function.end_lineno - function.lineno + 1
            limit = LONG_FUNCTIONS.get(f"{module.where}:{function.name}", (FUNCTION_LINES, ""))[0]
            if length > limit:
                bad.append(f"{module.where}:{function.lineno}: {function.name} has {length} lines, at most {limit}")
    report(bad, "Split the function, or name it in tests/architecture/limits.py with a reason.")


def test_exceptions_are_still_needed() -> None:
    files = {m.where: m.lines for m in MODULES}
    functions: dict[str, int] = {}
    for m in MODULES:
        for f in m.functions:
            key = f"{m.where}:{f.name}"
            functions[key] = max(functions.get(key, 0), f.end_lineno - f.lineno + 1)
    bad = [f"LONG_FILES: {name}" for name in LONG_FILES if files.get(name, 0) <= FILE_LINES]
    bad += [f"LONG_FUNCTIONS: {name}" for name in LONG_FUNCTIONS if functions.get(name, 0) <= FUNCTION_LINES]
    ways, rungs = measured(complexity), measured(ladder)
    bad += [f"COMPLEX_FUNCTIONS: {name}" for name in COMPLEX_FUNCTIONS if ways.get(name, 0) <= COMPLEXITY]
    bad += [f"LONG_LADDERS: {name}" for name in LONG_LADDERS if rungs.get(name, 0) <= RETURN_LADDER]
    handlers = {place for m in MODULES for place, _ in broad_handlers(m)}
    bad += [f"BROAD_HANDLERS: {name}" for name in BROAD_HANDLERS if name not in handlers]
    report(bad, "These rows of tests/architecture/limits.py name nothing that needs them; remove them.")


def test_dispatch_is_by_table() -> None:
    bad = []
    for module in MODULES:
        tails = {id(n.orelse[0]) for n in module.nodes if isinstance(n, ast.If) and len(n.orelse) == 1}
        for node in module.nodes:
            if isinstance(node, ast.If) and id(node) not in tails and chain(node) > LONGEST_CHAIN:
                bad.append(f"{module.where}:{node.lineno}: {chain(node)} branches")
    report(bad, f"An if/elif chain of more than {LONGEST_CHAIN} branches wants to be a table.")


def chain(node: ast.If) -> int:
    """Branches with a condition: an `if` and its `elif`s."""
    count = 1
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node, count = node.orelse[0], count + 1
    return count


@functools.cache
def own_nodes(function: ast.AST) -> tuple[ast.AST, ...]:
    """What the function consists of, without the functions and classes inside."""
    waiting, found = list(ast.iter_child_nodes(function)), []
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return tuple(found)


BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.match_case)


def complexity(function: ast.AST) -> int:
    """McCabe's number: one more than the places where control can go two ways."""
    count = 1
    for node in own_nodes(function):
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        else:
            count += isinstance(node, BRANCHES)
    return count


def ladder(function: ast.AST) -> int:
    """The most statements `if ...: return` in a row: a chain of `elif` by another name."""
    longest = 0
    for node in (function, *own_nodes(function)):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            rungs = 0
            for statement in body if isinstance(body, list) else ():
                alone = isinstance(statement, ast.If) and not statement.orelse
                rungs = rungs + 1 if alone and isinstance(statement.body[-1], ast.Return) else 0
                longest = max(longest, rungs)
    return longest


@functools.cache
def measured(number: Callable[[ast.AST], int]) -> dict[str, int]:
    """`path:function` → the largest number of the functions of that name."""
    found: dict[str, int] = {}
    for module in MODULES:
        for function in module.functions:
            key = f"{module.where}:{function.name}"
            found[key] = max(found.get(key, 0), number(function))
    return found


def test_functions_are_simple() -> None:
    found = measured(complexity).items()
    bad = [f"{name}: {count}" for name, count in found if count > COMPLEX_FUNCTIONS.get(name, COMPLEXITY)]
    report(bad, f"A function with more than {COMPLEXITY} ways through it wants to be several.")


def test_ladders_are_short() -> None:
    found = measured(ladder).items()
    bad = [f"{name}: {count}" for name, count in found if count > LONG_LADDERS.get(name, RETURN_LADDER)]
    report(bad, f"More than {RETURN_LADDER} statements `if ...: return` in a row want to be a table.")


@functools.cache
def nodes(module: Module) -> int:
    return sum(not isinstance(node, ast.expr_context) for node in module.nodes)


def test_lines_are_not_crowded() -> None:
    bad = [f"{m.where}: {nodes(m) / m.lines:.1f}" for m in MODULES if m.lines and nodes(m) > DENSITY * m.lines]
    report(bad, f"More than {DENSITY} syntax nodes a line: give names to parts, or split lines; limits are no game.")
    average = sum(map(nodes, MODULES)) / sum(m.lines for m in MODULES)
    assert average <= AVERAGE_DENSITY, f"{average:.2f} syntax nodes a line in all"


def test_no_global_statements() -> None:
    bad = [
        f"{m.where}:{n.lineno}: global {', '.join(n.names)}"
        for m in MODULES
        for n in m.nodes
        if isinstance(n, ast.Global)
    ]
    report(bad, "State belongs to an object that is passed down.")


def broad_handlers(module: Module) -> Iterator[tuple[str, int]]:
    """`path:function` and line of each handler that catches everything, and neither raises nor uses the error."""
    found = [node for node in module.nodes if isinstance(node, ast.ExceptHandler) and catches_all(node)]
    for node in found:
        for function in module.functions:
            if function.lineno <= node.lineno <= function.end_lineno:
                yield f"{module.where}:{function.name}", node.lineno


def catches_all(handler: ast.ExceptHandler) -> bool:
    names = {"bare"} if handler.type is None else {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}
    return bool(names & {"bare", "Exception", "BaseException"}) and not answers(handler)


def answers(handler: ast.ExceptHandler) -> bool:
    inside = [n for statement in handler.body for n in ast.walk(statement)]
    return any(isinstance(n, ast.Raise) or (isinstance(n, ast.Name) and n.id == handler.name) for n in inside)


def test_no_handler_swallows_everything() -> None:
    found = {(m.where, line, place) for m in MODULES for place, line in broad_handlers(m)}
    bad = [f"{path}:{line}: {place}" for path, line, place in sorted(found) if place not in BROAD_HANDLERS]
    report(bad, "Catch what is expected, or re-raise; if all must be caught, say why in tests/architecture/limits.py.")


def test_modules_say_what_they_are() -> None:
    bad = []
    for module in MODULES:
        if not module.tree.body:
            continue
        if ast.get_docstring(module.tree) is None:
            bad.append(f"{module.where}: no docstring")
        defines = any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) for n in module.tree.body)
        if defines and "from __future__ import annotations" not in module.text:
            bad.append(f"{module.where}: no `from __future__ import annotations`")
    report(bad, "A file opens with a docstring that states its contract, and annotations are never evaluated.")


def test_public_functions_are_typed() -> None:
    bad = []
    for module in MODULES:
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns is None:
                bad.append(f"{module.where}:{node.lineno}: {node.name} has no return type")
    report(bad, "A public function states what it takes and gives.")


def test_python_versions_are_data() -> None:
    bad = [
        f"{m.where}:{n.lineno}: {n.attr}"
        for m in MODULES
        for n in m.nodes
        if isinstance(n, ast.Attribute) and n.attr in ("version_info", "hexversion") and m.part != "bytecode"
    ]
    report(bad, "What differs between Python versions is a row of a table in bytecode/.")
