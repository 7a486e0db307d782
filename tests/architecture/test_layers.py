"""Who may import whom: the order of the phases is written in pipeline.py and nowhere else."""

from __future__ import annotations

from .project import PACKAGE, load, owner, report

MODULES = load()
NAMES = frozenset(m.name for m in MODULES)

PHASES = (
    "bytecode", "capture", "guards", "repeats", "normalize", "autograd", "lower", "schedule", "codegen", "runtime",
)  # fmt: skip
SHARED = {"ir", "ops", "errors", "options"}
ANYTHING = None

# part of the package: the parts that it may import, itself aside; None stands for all
MAY_IMPORT: dict[str, set[str] | None] = {
    "": {"api", "config", "errors", "exporting", "ir", "public", "supported"},
    "supported": {"bytecode"},
    "api": ANYTHING,
    "commands": ANYTHING,
    # Like a compilation it runs the stages, but only as far as a graph, which it then runs.
    "exporting": SHARED | {"diagnostics", "guards", "interop", "request", "runtime"},
    "minify": {"diagnostics", "errors", "ir"},
    "__main__": {"commands"},
    "request": ANYTHING,
    "compilation": ANYTHING,
    "loading": set(),
    "callees": {"ir", "loading"},
    "public": {"diagnostics", "errors", "interop", "ir", "runtime"},
    "pipeline": ANYTHING,
    "building": ANYTHING,
    # Between a compilation, which asks for what is kept, and what it is made of.
    "kept": SHARED | {"assembly", "config", "diagnostics", "exporting", "guards", "loading", "runtime", "targets"},
    "assembly": SHARED | {"diagnostics", "runtime", "targets"},
    "targets": SHARED | {"loading"},
    # A kernel of its own for one function: its functions of elements go through the stages, and codegen writes it.
    "attention": SHARED | {"codegen", "loading", "lower", "normalize", "schedule"},
    "products": SHARED | {"codegen", "normalize"},
    "errors": set(),
    "options": {"errors"},
    "config": {"errors", "options"},
    "ir": {"errors"},
    "ops": {"ir", "errors", "loading", "options"},
    **{phase: SHARED for phase in PHASES},
    # Assembling and rebuilding code objects is one craft: capture and guards emit code through the bytecode phase.
    "capture": SHARED | {"bytecode"},
    "diagnostics": SHARED | {"config", "api", "pipeline"},
    "interop": SHARED | {"config", "api", "pipeline"},
}

ASSEMBLER = "dovetail.runtime.gpu.assembler"


def test_every_part_is_known() -> None:
    bad = sorted({f"{m.where}: {m.part!r} is not in MAY_IMPORT" for m in MODULES if m.part not in MAY_IMPORT})
    report(bad, "A new folder or file directly under the package needs a row in tests/architecture/test_layers.py.")


def test_every_folder_is_a_package() -> None:
    folders = {m.path.parent for m in MODULES}
    bad = sorted(f.name for f in folders if not (f / "__init__.py").exists())
    report(bad, "A folder of modules has an __init__.py, or an installed wheel may lack it.")


def test_phases_import_only_the_shared_parts() -> None:
    bad = []
    for module in MODULES:
        allowed = MAY_IMPORT.get(module.part, ANYTHING)
        for item in module.imports:
            if allowed is None or not item.target.startswith(PACKAGE + "."):
                continue
            part = item.target.split(".")[1]
            if part != module.part and part not in allowed:
                bad.append(f"{module.where}:{item.line}: {module.part or 'the package'} imports {item.target}")
    report(bad, "A phase imports ir, ops, errors, options and its own folder; pipeline.py joins the phases.")


def test_own_modules_are_imported_at_the_top() -> None:
    bad = [
        f"{m.where}:{i.line}: imports {i.target} inside a function"
        for m in MODULES
        for i in m.imports
        if i.in_function and i.target.split(".")[0] == PACKAGE
    ]
    report(bad, "An import inside a function hides a cycle or a cost; move it to the top of the file.")


def test_kernels_are_compiled_in_a_process_without_this_package() -> None:
    (assembler,) = [module for module in MODULES if module.name == ASSEMBLER]
    report([i.target for i in assembler.imports if i.target.startswith(PACKAGE)], "It starts without this package.")


def test_records_are_written_when_they_are_used() -> None:
    """All but those of files that import hardly anything."""
    bad = [
        f"{module.where}:{item.line}: imports {item.target}"
        for module in MODULES
        for item in module.imports
        if item.target == "dataclasses.dataclass" and not item.typing_only
        and module.part not in ("config", "errors", "options", "supported")
        and module.name != ASSEMBLER
    ]  # fmt: skip
    report(bad, "`from dovetail.ir.records import dataclass`: the standard library's takes 0.4 ms a class.")


def test_no_cycles() -> None:
    edges = {m.name: set() for m in MODULES}
    for module in MODULES:
        for item in module.imports:
            target = owner(item.target, NAMES) if item.target.startswith(PACKAGE) else None
            if target and target != module.name and not item.typing_only:
                edges[module.name].add(target)
    cycle = find_cycle(edges)
    assert cycle is None, "These modules import each other: " + " -> ".join(cycle)


def find_cycle(edges: dict[str, set[str]]) -> list[str] | None:
    """One cycle as the list of its nodes, the first repeated at the end; None if there is none."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> list[str] | None:
        state[node] = 1
        path.append(node)
        for after in sorted(edges[node]):
            if state.get(after) == 1:
                return [*path[path.index(after) :], after]
            if after not in state and (found := visit(after)):
                return found
        state[node] = 2
        path.pop()
        return None

    for start in sorted(edges):
        if start not in state and (found := visit(start)):
            return found
    return None


def test_the_cycle_finder_finds_cycles() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
