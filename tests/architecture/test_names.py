"""The names that users may rely on are exactly these."""

from __future__ import annotations

import types

import dovetail

PUBLIC = {
    "BackendError", "DovetailError", "GraphBreakError", "InternalError", "InvalidArgument", "Unsupported",
    "compile", "compile_times", "config", "disable", "explain", "get_default_backend", "is_compiling", "list_backends",
    "register_backend", "reset", "run", "set_default_backend", "set_logs", "set_stance",
}  # fmt: skip


def test_exactly_these_names_are_exported() -> None:
    assert set(dovetail.__all__) == PUBLIC
    assert len(dovetail.__all__) == len(set(dovetail.__all__))


def test_nothing_else_is_visible() -> None:
    visible = {n for n, v in vars(dovetail).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert visible - PUBLIC == set()
    assert all(hasattr(dovetail, name) for name in PUBLIC)


def test_public_functions_are_documented() -> None:
    assert [n for n in PUBLIC if not getattr(dovetail, n).__doc__] == []
