"""Capture in layers: what its files ask of the session counts as asking the file that the session has it from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import networkx

from .project import Module, load, owner, report

CAPTURE = "dovetail.capture"
VALUES = f"{CAPTURE}.values."
MODULES = {m.name: m for m in load() if m.name.startswith(CAPTURE)}
NAMES = frozenset(MODULES)

#: Files of the largest knot: numbers, operators and tensors, which are made of one another. Lower it; never raise it.
LARGEST_KNOT = 10

#: Parameters whose type a reader must be able to follow.
FOLLOWED = frozenset(("s", "session", "f", "frame", "rebuilder"))


def bindings(session: Module) -> dict[str, str]:
    """Operations of the session that are functions of other files → the file."""
    files = {item.target.rpartition(".")[2]: owner(item.target, NAMES) for item in session.imports}
    files |= {
        alias.asname: owner(f"{node.module}.{alias.name}", NAMES)
        for node in session.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    body = next(n.body for n in session.tree.body if isinstance(n, ast.ClassDef) and n.name == "Session")
    found = {}
    for node in body:
        for target, value in pairs(node):
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and files.get(value.value.id):
                found[target] = files[value.value.id]
    return found


def pairs(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        yield from ((name.id, value) for name, value in zip(node.targets[0].elts, node.value.elts))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        yield node.targets[0].id, node.value


def asked(module: Module) -> Iterator[str]:
    """What the module's code takes from a session."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute):
            holder = getattr(node.value, "id", None) or getattr(node.value, "attr", None)  # `s.truth`, `f.s.truth`
            if holder in ("s", "session"):
                yield node.attr


def graph() -> networkx.DiGraph:
    """Who needs whom while capture runs. Values only name Python's rules (`values/rules.py`), which are above them."""
    edges = networkx.DiGraph()
    bound = bindings(MODULES[f"{CAPTURE}.session"])
    for module in MODULES.values():
        imported = {owner(i.target, NAMES) for i in module.imports if not i.typing_only}
        free = module.name.startswith(VALUES) or module.name == f"{CAPTURE}.session"
        through = set() if free else {bound[name] for name in asked(module) if name in bound}
        edges.add_edges_from((module.name, target) for target in (imported | through) - {None, module.name})
    return edges


#: The folders and files of capture, from the lowest: each stands on those before it.
ROOMS = (
    "process", "values", "cpython", "tables", "polyfills", "state", "outside", "numbers", "containers", "tensors",
    "interpreter", "protocols", "calling", "breaks", "residual", "higher_order", "handlers", "library", "session",
    "call_target", "driver",
)  # fmt: skip
#: Imports that go the other way. Remove a row; add none.
UPWARDS: set[tuple[str, str]] = set()


def test_rooms_stand_on_those_before_them() -> None:
    found = set()
    for module in MODULES.values():
        for item in module.imports:
            target = owner(item.target, NAMES)
            if target and not item.typing_only and CAPTURE not in (target, module.name):
                above, below = module.name.split(".")[2], target.split(".")[2]
                if ROOMS.index(below) > ROOMS.index(above):
                    found.add((module.name.removeprefix(CAPTURE + "."), target.removeprefix(CAPTURE + ".")))
    bad = [f"{above} imports {below}" for above, below in sorted(found - UPWARDS)]
    bad += [f"UPWARDS: {row} is no longer needed" for row in sorted(UPWARDS - found)]
    report(bad, f"A folder of capture imports those before it: {', '.join(ROOMS)}.")


def test_files_that_need_each_other_are_few() -> None:
    knot = max(networkx.strongly_connected_components(graph()), key=len)
    assert len(knot) <= LARGEST_KNOT, f"{len(knot)} files need each other: {', '.join(sorted(knot))}"


def test_values_ask_for_no_more_than_the_rules() -> None:
    rules = next(n for n in MODULES[f"{VALUES}rules"].tree.body if isinstance(n, ast.ClassDef))
    allowed = {n.name for n in rules.body if isinstance(n, ast.FunctionDef)}
    bound = bindings(MODULES[f"{CAPTURE}.session"])
    bad = [
        f"{m.where}: s.{name}"
        for m in MODULES.values()
        if m.name.startswith(VALUES)
        for name in asked(m)
        if name in bound and name not in allowed
    ]
    report(bad, "Values ask the layers above for what values/rules.py names, and for nothing else.")


def test_what_everything_is_handed_has_a_type() -> None:
    bad = [
        f"{m.where}:{a.lineno}: {a.arg}"
        for m in MODULES.values()
        for f in m.functions
        for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)
        if a.arg in FOLLOWED and isinstance(a.annotation, ast.Name) and a.annotation.id == "Any"
    ]
    report(bad, "A session, a frame and a rebuilder are typed: import the class under TYPE_CHECKING.")
