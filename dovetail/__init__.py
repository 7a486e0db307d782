"""Dovetail: a just-in-time compiler for PyTorch programs. `dovetail.compile(model)` is where to start."""

from dovetail.api import (
    compile,
    compile_times,
    config,
    disable,
    explain,
    get_default_backend,
    is_compiling,
    list_backends,
    register_backend,
    reset,
    run,
    set_default_backend,
    set_logs,
    set_stance,
)
from dovetail.errors import (
    BackendError,
    DovetailError,
    GraphBreakError,
    InternalError,
    InvalidArgument,
    Unsupported,
)

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "DovetailError",
    "GraphBreakError",
    "InternalError",
    "InvalidArgument",
    "Unsupported",
    "compile",
    "compile_times",
    "config",
    "disable",
    "explain",
    "get_default_backend",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
    "run",
    "set_default_backend",
    "set_logs",
    "set_stance",
]
