"""Dovetail: a just-in-time compiler for PyTorch programs. `dovetail.compile(model)` is where to start."""

from __future__ import annotations

import importlib
import typing

import torch as _torch

from dovetail import supported as _supported
from dovetail.ir.process import paused_collection as _paused_collection

with _paused_collection():  # what is imported stays
    _supported.check(_torch.__version__)  # before the rest, which would fail in a way that tells nobody why
    from dovetail.api import (
        CompileProfiler,
        allow_in_graph,
        assume_constant_result,
        compile,
        compile_times,
        comptime,
        config,
        cudagraph_mark_step_begin,
        disable,
        disallow_in_graph,
        error_on_graph_break,
        explain,
        export,
        get_default_backend,
        graph_break,
        is_compiling,
        list_backends,
        load,
        load_cache_artifacts,
        nested_compile_region,
        register_backend,
        reset,
        run,
        save,
        save_cache_artifacts,
        set_default_backend,
        set_logs,
        set_stance,
        skip_frame,
        substitute_in_graph,
        wrap_numpy,
    )
    from dovetail.errors import (
        BackendError,
        DovetailError,
        GraphBreakError,
        InternalError,
        InvalidArgument,
        Unsupported,
    )
    from dovetail.public.dynamic_marks import mark_dynamic, mark_static, mark_static_address, maybe_mark_dynamic

if typing.TYPE_CHECKING:
    from dovetail.exporting.program import ExportedProgram

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CompileProfiler",
    "DovetailError",
    "ExportedProgram",
    "GraphBreakError",
    "InternalError",
    "InvalidArgument",
    "Unsupported",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_times",
    "comptime",
    "config",
    "cudagraph_mark_step_begin",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "export",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "list_backends",
    "load",
    "load_cache_artifacts",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "register_backend",
    "reset",
    "run",
    "save",
    "save_cache_artifacts",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "skip_frame",
    "substitute_in_graph",
    "wrap_numpy",
]


def __getattr__(name: str) -> typing.Any:
    # Its modules are loaded where something is exported, or loaded from a file.
    if name != "ExportedProgram":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("dovetail.exporting.program").ExportedProgram
