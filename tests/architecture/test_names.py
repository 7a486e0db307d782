"""The names that users may rely on are exactly these."""

from __future__ import annotations

import ast
import types
from collections import Counter

import dovetail

from .project import load

PUBLIC = {
    "BackendError", "CompileProfiler", "DovetailError", "ExportedProgram", "GraphBreakError", "InternalError",
    "InvalidArgument", "Unsupported", "allow_in_graph", "assume_constant_result", "compile", "compile_times",
    "comptime", "config", "cudagraph_mark_step_begin", "disable", "disallow_in_graph", "error_on_graph_break",
    "explain", "export", "install", "uninstall",
    "get_default_backend", "graph_break", "is_compiling", "list_backends", "load",
    "load_cache_artifacts", "nested_compile_region",
    "register_backend", "reset", "run", "save", "save_cache_artifacts", "set_default_backend", "set_logs",
    "set_stance", "skip_frame", "substitute_in_graph", "wrap_numpy",
    "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic",
}  # fmt: skip


def test_exactly_these_names_are_exported() -> None:
    assert set(dovetail.__all__) == PUBLIC
    assert len(dovetail.__all__) == len(set(dovetail.__all__))


def test_nothing_else_is_visible() -> None:
    hidden = (types.ModuleType, type(annotations))
    visible = {n for n, v in vars(dovetail).items() if not n.startswith("_") and not isinstance(v, hidden)}
    assert visible - PUBLIC == set()
    assert all(hasattr(dovetail, name) for name in PUBLIC)


def test_public_functions_are_documented() -> None:
    assert [n for n in PUBLIC if not getattr(dovetail, n).__doc__] == []


#: Classes of one name in several files. Qualify one and remove the row; add none.
SEVERAL = {
    "Arg", "Binary", "Code", "Const", "Entry", "Expressions", "Known", "Region", "Row", "Scope", "Snapshot",
    "Spec", "Store", "Value",
}  # fmt: skip


def test_a_class_is_known_by_its_name() -> None:
    names = Counter(n.name for m in load() for n in m.tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_")
    several = {name for name, count in names.items() if count > 1}
    assert several <= SEVERAL, f"these classes have one name in several files: {', '.join(sorted(several - SEVERAL))}"
    assert several >= SEVERAL, f"no longer needed in SEVERAL: {', '.join(sorted(SEVERAL - several))}"
