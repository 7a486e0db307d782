"""`dovetail.compile`, the functions that show what it did, and all other names that a program may use.

Argument checking and wiring only. A compilation is in `compilation.py`, the compiled callables are in
`runtime/entry*.py`, the stages in `pipeline.py`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from dovetail.config import config
from dovetail.diagnostics import breaks, logs
from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.explain import ExplainOutput, explain_records
from dovetail.diagnostics.profiler import CompileProfiler
from dovetail.diagnostics.times import compile_times
from dovetail.errors import BackendError, DovetailError, GraphBreakError, InternalError, InvalidArgument, Unsupported
from dovetail.interop.backends import (
    BACKENDS,
    get_default_backend,
    list_backends,
    register_backend,
    set_default_backend,
)
from dovetail.interop.composable import share_state
from dovetail.interop.shapes_spec import attached, varying_names
from dovetail.ir import marks
from dovetail.ir.marks import original_of
from dovetail.loading import loaded
from dovetail.options import apart, checked_limit, checked_mode, checked_options, without_filter
from dovetail.public.comptime import comptime
from dovetail.public.control import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    graph_break,
    is_compiling,
    nested_compile_region,
    reset,
    run,
    set_stance,
    skip_frame,
    substitute_in_graph,
)
from dovetail.public.dynamic_marks import mark_dynamic, mark_static, mark_static_address, maybe_mark_dynamic
from dovetail.public.numpy_functions import wrap_numpy
from dovetail.request import Request
from dovetail.runtime.dispatch.compiled_module import CompiledModule, wrap_module
from dovetail.runtime.dispatch.dispatcher import wrap_function

if TYPE_CHECKING:
    from dovetail.exporting.program import ExportedProgram

F = TypeVar("F", bound=Callable[..., Any])


@overload
def compile(
    model: F, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: Any = ..., mode: str | None = ...,
    options: Mapping[str, Any] | None = ..., disable: bool = ..., name: str | None = ...,
    recompile_limit: int | None = ..., isolate_recompiles: bool = ..., dynamic_shapes: Any = ...,
    shapes_spec: Any = ...,
) -> F: ...  # fmt: skip
@overload
def compile(
    model: None = None, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: Any = ...,
    mode: str | None = ..., options: Mapping[str, Any] | None = ..., disable: bool = ..., name: str | None = ...,
    recompile_limit: int | None = ..., isolate_recompiles: bool = ..., dynamic_shapes: Any = ...,
    shapes_spec: Any = ...,
) -> Callable[[F], F]: ...  # fmt: skip
def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None,
    mode: str | None = None, options: Mapping[str, Any] | None = None, disable: bool = False, name: str | None = None,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, dynamic_shapes: Any = None,
    shapes_spec: Any = None,
) -> Any:  # fmt: skip
    """Compile a function, method, callable or `nn.Module`; a call or a decorator.

    model: what to compile; without it the result is a decorator. A class is changed: calls of its instances compile.
    fullgraph: raise `GraphBreakError` where the code cannot be one graph.
    dynamic: True for sizes that may change, False for fixed ones, None to decide by what changes.
    backend: a name from `list_backends()`, one registered for torch.compile, or a callable
        `(gm, example_inputs) -> callable`. None is the default backend.
    mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs".
    options: finer choices than a mode, by name. A callable backend is given those that are unknown as `options`.
        `guard_filter_fn` is given descriptions of guards and says which to check; without some, results may be wrong.
    disable: return the model as it is.
    name: shown with the function's own in messages and profiles.
    recompile_limit: entries for calls of one kind, in place of `config.recompile_limit`.
    isolate_recompiles: whether the entries are this call's own. They always are.
    dynamic_shapes: sizes and numbers that vary from the first call on, as `torch.fx.experimental.dynamic_spec` has
        them. What `@dynamic_spec` has put on the model counts, too.
    shapes_spec: the name of `dynamic_shapes` until PyTorch 2.14.

    A compiled module is an instance of the model's class and shares its state. Nothing is compiled before the
    first call. Raises InvalidArgument for arguments that make no sense, with the valid ones listed.
    """
    request = request_of(
        fullgraph, dynamic, backend, mode, options, False, name, recompile_limit, isolate_recompiles, dynamic_shapes,
        shapes_spec,
    )  # fmt: skip
    if model is None:
        return lambda fn: fn if disable else _compile(fn, _decorated(request, fn))
    return model if disable else _compile(model, _decorated(request, model))


def _decorated(request: Request, model: Any) -> Request:
    """The request with what `@dynamic_spec` has put on the model. Raises InvalidArgument where both say something."""
    spec = attached(model)
    if spec is None:
        return request
    if request.varying:
        raise InvalidArgument("give either dynamic_shapes or the decorator @dynamic_spec, not both")
    return Request(**{**request.arguments, "varying": varying_names(spec)})


def request_of(
    fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None, mode: str | None = None,
    options: Mapping[str, Any] | None = None, disable: bool = False, name: str | None = None,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, dynamic_shapes: Any = None,
    shapes_spec: Any = None,
) -> Request:  # fmt: skip
    """What `compile` makes of its arguments, checked."""
    _flag("isolate_recompiles", isolate_recompiles)
    if dynamic_shapes is not None and shapes_spec is not None:
        raise InvalidArgument("give either dynamic_shapes or shapes_spec, which is its older name")
    dynamic_shapes = shapes_spec if dynamic_shapes is None else dynamic_shapes
    if dynamic_shapes is not None and dynamic is not None:
        raise InvalidArgument("give either dynamic or dynamic_shapes, not both")
    if name is not None and not isinstance(name, str):
        raise InvalidArgument(f"name must be a text, not {name!r}")
    backend = _backend(backend)
    plain, guard_filter = without_filter(options)
    own, others = apart(plain) if callable(backend) else (plain, {})
    return Request(
        _flag("fullgraph", fullgraph),
        _dynamic(dynamic),
        functools.partial(backend, options=others) if others else backend,
        checked_mode(mode, options),
        checked_options(own) | checked_limit(recompile_limit, own),
        name=name,
        guard_filter=guard_filter,
        varying=varying_names(dynamic_shapes),
    )


def compiled_inside(model: Any, disable: bool) -> Any:
    """What compiled code traces in the place of `compile`."""
    if model is None:
        return lambda fn: compiled_inside(fn, disable)
    return model if disable else functools.wraps(model)(lambda *args, **kwargs: model(*args, **kwargs))


marks.put(compile, marks.Mark.COMPILE, (request_of, compiled_inside))


def _compile(model: Any, request: Request) -> Any:
    if isinstance(model, CompiledModule):
        model = model._orig_mod
    if isinstance(model, torch.nn.Module):
        compiled = wrap_module(model, request, (_compile_again, (request.arguments,)))
        share_state(compiled, model)
        return compiled
    call = inspect.getattr_static(model, "__call__", None) if isinstance(model, type) else None
    if isinstance(call, FunctionType) and model.__module__.partition(".")[0] != "torch":
        model.__call__ = wrap_function(original_of(call), request)
        return model
    if isinstance(model, type) or not callable(model):
        what = "a function, a callable object, an nn.Module or a class of yours whose instances are called"
        raise InvalidArgument(f"dovetail.compile takes {what}, not {model!r}")
    return wrap_function(original_of(model), request)


def _compile_again(model: torch.nn.Module, arguments: Mapping[str, Any]) -> torch.nn.Module:
    """What a pickled or copied compiled module becomes: the same request for another original."""
    return _compile(model, Request(**arguments))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {value!r}")
    return value


def _dynamic(value: Any) -> bool | None:
    return None if value is None else _flag("dynamic", value)


def _backend(backend: Any) -> Any:
    return None if backend is None else BACKENDS.resolve(backend)


# ---------------------------------------------------------------- in the place of torch.compile


def install() -> Any:
    """Let `torch.compile`, `nn.Module.compile` and what is in `torch.compiler` mean Dovetail; a call or a `with` block.

    They take PyTorch's own arguments: the backend "inductor" is Dovetail, and what means nothing here is told once.
    Functions that were compiled or decorated before stay as they are. In the environment: DOVETAIL_INSTALL=1, read by
    `import dovetail`. After a `with` block that has installed it all is as before.
    """
    return _installed().install()


def uninstall() -> None:
    """Let PyTorch's names mean what they meant before `install`. What was compiled meanwhile stays compiled."""
    _installed().uninstall()


def _installed() -> Any:
    return importlib.import_module("dovetail.interop.installed")


# ---------------------------------------------------------------- seeing what happened


def explain(fn: Any, *given: Any, backend: Any = None, dynamic: bool | None = None) -> Callable[..., ExplainOutput]:
    """`explain(fn)(*args)` compiles and runs `fn` anew and says what was captured, what was not and why.

    Raises InvalidArgument for `explain(fn, *args)`, as PyTorch's older documents have it.
    """
    if given:
        raise InvalidArgument(f"explain takes the function alone, not {len(given)} more: explain(fn)(*args)")
    original = fn._orig_mod if isinstance(fn, CompiledModule) else original_of(fn)

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        records: list[CompileRecord] = []
        compiled = _compile(original, Request(False, _dynamic(dynamic), _backend(backend), "default", {}, records))
        try:
            compiled(*args, **kwargs)
        except Unsupported:
            if not any(record.failure for record in records):
                raise
        return explain_records(records)

    return explained


def export(
    model: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:  # fmt: skip
    """The model as one graph that runs, and can be saved, without its code: a `dovetail.ExportedProgram`.

    model: a function, method or `nn.Module`. It is traced for these arguments, and not run.
    args, kwargs: arguments of one call; tensors, numbers, texts, None and containers that `torch.utils._pytree` knows.
    dynamic_shapes: which sizes may be others in later calls, as `torch.export` takes it: `{"x": {0: "batch"}}`, with
        names, `torch.export.Dim`s, or None and ints for constants. Without it, those marked with `mark_dynamic`.

    Everything else that the model relies on (attributes, globals, numbers among the arguments) is a constant of the
    graph. Raises GraphBreakError where the code cannot be one graph or does something that no graph does,
    InvalidArgument for arguments that make no sense and for declared sizes that the code relates in other ways,
    SpecializedDimension for one that it makes a constant of.
    """
    # Capture and what it needs are loaded where something is compiled, or exported.
    exporting = loaded("dovetail.exporting.export")
    return exporting.export(model, args, kwargs, dynamic_shapes)


def save(compiled: Callable[..., Any], path: str | os.PathLike[str], weights: bool = True) -> None:
    """Write a compiled function or module to a file that another process runs without compiling.

    compiled: what `dovetail.compile` gave, called before: each of its compilations is written, with machine code.
    weights: with a module and its parameters inside, by pickle; `load` needs the module's classes then, but for what
        `ExportedProgram.module()` gives. False: `load` is given the model. A function is found by its name.

    Raises InvalidArgument where nothing was compiled yet, and for compilations that only this process can use; the
    reason is in the message.
    """
    dispatcher = getattr(compiled, "_dovetail_dispatcher", None)
    if dispatcher is None:
        raise InvalidArgument(f"save takes what dovetail.compile gave, not {compiled!r}")
    request = dispatcher.compiler
    given = {name: getattr(request, name) for name in ("fullgraph", "dynamic", "mode", "user_options")}
    _files().write(os.fspath(path), dispatcher.fn, given, dispatcher.entries, weights)


def load(path: str | os.PathLike[str], model: Any = None, map_location: Any = None) -> Any:
    """What `save` wrote, compiled: a call that fits one of the compilations runs it, any other one compiles.

    model: what was compiled, where the file does not hold it.
    map_location: the devices of a module's parameters, as `torch.load` has it.

    Loading a module runs pickled code, and machine code is in the file: load files of people you trust. Raises
    InvalidArgument for a file that is damaged or of another format. Under other versions, or on another machine, it
    warns and compiles anew.
    """
    read = _files().read(os.fspath(path), model, map_location)
    if read.differs:
        warnings.warn(f"dovetail compiles {path} anew, since {read.differs}", stacklevel=2)
    return _compile(read.model, Request(**read.request, given=read.given))


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """What this process has of the cache on disk as bytes, for `load_cache_artifacts` on other machines of the kind,
    and a `CacheInfo` with the number of `files` and their `size`; None if it has nothing."""
    found: tuple[bytes, Any] | None = _files().artifacts()
    return found


def load_cache_artifacts(data: bytes) -> Any:
    """Put what `save_cache_artifacts` gave into the cache on disk; a `CacheInfo`. Raises InvalidArgument for others."""
    return _files().put_back(data)


def _files() -> Any:
    # What reads and writes is loaded with the first file, not with the package.
    return loaded("dovetail.kept.files")


def set_logs(levels: Mapping[str, Any] | None = None, **named: Any) -> None:
    logs.set_logs(levels, **named)


set_logs.__doc__ = logs.set_logs.__doc__
atexit.register(breaks.at_exit)
logs.set_from(os.environ.get("DOVETAIL_LOGS", ""))

__all__ = [
    "BackendError", "CompileProfiler", "DovetailError", "GraphBreakError", "InternalError", "InvalidArgument",
    "Unsupported", "allow_in_graph", "assume_constant_result", "compile", "compile_times", "comptime", "config",
    "cudagraph_mark_step_begin", "disable", "disallow_in_graph", "error_on_graph_break", "explain", "export",
    "get_default_backend", "graph_break", "install", "is_compiling", "list_backends", "load", "load_cache_artifacts",
    "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "nested_compile_region",
    "register_backend", "reset", "run", "save", "save_cache_artifacts", "set_default_backend", "set_logs", "set_stance",
    "skip_frame", "substitute_in_graph", "uninstall", "wrap_numpy",
]  # fmt: skip
