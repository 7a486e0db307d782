"""The public functions: compile, control and explain.

Argument checking and wiring only. The compiled callables are in `runtime/entry*.py`, the stages in `pipeline.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

import torch
import torch.fx

from dovetail import guards
from dovetail.config import config
from dovetail.diagnostics import logs
from dovetail.diagnostics.dump import DumpSink
from dovetail.diagnostics.events import CompileRecord, Events
from dovetail.diagnostics.explain import ExplainOutput, explain_records
from dovetail.diagnostics.times import RECORDS, compile_times
from dovetail.errors import InvalidArgument, Unsupported
from dovetail.interop.backends import (
    BACKENDS,
    BUILT_IN,
    call_backend,
    get_default_backend,
    list_backends,
    register_backend,
    set_default_backend,
)
from dovetail.ir.captured import Break, Continuation
from dovetail.options import Options, checked_mode, checked_options
from dovetail.runtime.entry import REGISTRY, Dispatcher, to_the_end, wrap_function
from dovetail.runtime.entry_module import CompiledModule, wrap_module

F = TypeVar("F", bound=Callable[..., Any])
STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


@dataclass(frozen=True)
class Request:
    """The arguments of one `dovetail.compile` call, checked. Makes entries; a `runtime.entry.Compiler`."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: Any = None
    mode: str | None = None
    user_options: Mapping[str, Any] | None = None
    records: list[CompileRecord] | None = None  # where explain wants this request's compilations listed
    failures: list[Unsupported] | None = None
    rests: dict[Any, Dispatcher] = field(default_factory=dict, compare=False, repr=False)  # what follows graph breaks

    def options(self) -> Options:
        """The choices of a compilation that starts now: the arguments, else the settings."""
        settings = {
            n: getattr(config, n) for n in ("numerics", "fallback_random", "recompile_limit", "suppress_errors")
        }
        return Options(
            backend=BACKENDS.resolve(self.backend), mode=self.mode or "default", fullgraph=self.fullgraph,
            dynamic=self.dynamic, debug_dir=config.debug_dir if config.compile_debug else None,
            **{**settings, **(self.user_options or {})},
        )  # fmt: skip

    def where(self, fn: Any) -> str:
        name, place = describe(fn)
        return f"{name} ({place})" if place else name

    def must_stay_eager(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        proxies = any(isinstance(v, torch.fx.Proxy) for v in (*args, *kwargs.values()))
        return proxies or guards.outside_reason() is not None

    def rest(self, found: Continuation) -> Dispatcher:
        """The dispatcher of what follows a graph break; the same one for the same rest, so that loops converge."""
        key = found.key
        if key not in self.rests:
            self.rests[key] = Dispatcher(importlib.import_module("dovetail.pipeline").resumed(found), self)
        return self.rests[key]

    def compile(
        self, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int, reasons: list[str]
    ) -> guards.Entry:
        """One run of the pipeline, reported as it goes."""
        options = self.options()
        record = RECORDS.start(*describe(fn), index, reasons)
        if self.records is not None:
            self.records.append(record)
        dump = DumpSink(options.debug_dir) if options.debug_dir else None
        events = Events(record, [logs.LogSink(), *([dump] if dump else [])])
        _log_recompile(record)
        try:
            entry = _compile_entry(fn, args, kwargs, options, events, self.rest)
            for found in entry.captured.breaks:
                logs.log("graph_breaks", f"graph break in {record.function}, {record.place}:\n{_break_text(found)}")
            if entry.captured.breaks and not hasattr(fn, "_dovetail_continuation"):
                entry = replace(entry, call=to_the_end(entry.call))
            record.outcome = "compiled"
            if self.records is not None:
                record.captured = entry.captured
            return entry
        except BaseException as error:
            record.outcome = f"failed in {events.current}: {type(error).__name__}: {error}"
            _note_failure(error, events.current, record, self.failures)
            raise
        finally:
            if dump is not None:
                dump.finish(record)


def _break_text(found: Break) -> str:
    return str(Unsupported(found.code, found.reason, found.remedy, found.stack))


def _compile_entry(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, events: Events,
    rest: Callable[[Continuation], Dispatcher],
) -> guards.Entry:  # fmt: skip
    # The pipeline imports every phase and llvmlite: 0.2 s that only a program that compiles should pay.
    pipeline = importlib.import_module("dovetail.pipeline")
    taken = guards.snapshot()
    captured = pipeline.trace(fn, args, kwargs, options, events)
    rests = {name: rest(found) for name, found in captured.continuations.items()}
    captured = replace(captured, names={**captured.names, **rests})
    if options.backend in BUILT_IN:
        fakes = [given.fake for given in captured.inputs]
        graph = _STAGES[options.backend](pipeline)(captured.graph, fakes, options, events)
    else:
        with events.stage("backend"):
            graph = call_backend(options.backend, captured.graph, guards.real_inputs(captured, fn, args, kwargs))
    events.artifact("graph", lambda: _table(captured.graph))
    events.artifact("graph_sizes", lambda: "\n".join(f"{i.source.name()}: {_sizes(i.fake)}" for i in captured.inputs))
    events.artifact("bytecode", lambda: captured.residual)
    with events.stage("guards"):
        entry = guards.build(captured, fn, graph, taken)
    events.artifact("guards", lambda: entry.text)
    return entry


#: How each built-in backend compiles a captured graph: `(graph, fakes, options, events) -> callable`.
_STAGES: dict[str, Callable[[Any], Callable[..., Callable[..., Any]]]] = {
    "eager": lambda pipeline: lambda graph, fakes, options, events: graph,
    "aot_eager": lambda pipeline: pipeline.compile_aten,
    "dovetail": lambda pipeline: pipeline.compile_graph,
}


def _table(graph: torch.fx.GraphModule) -> str:
    rows = [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in graph.graph.nodes]
    return "\n".join("  ".join(cell.ljust(24) for cell in row).rstrip() for row in rows)


def _sizes(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else repr(value)


def _log_recompile(record: CompileRecord) -> None:
    if not record.reasons:
        return
    head = f"Recompiling function {record.function} in {record.place}\n    triggered by the following guard failure(s):"
    lines = [f"    - entry {len(record.reasons) - 1 - k}: {reason}" for k, reason in enumerate(record.reasons)]
    logs.log("recompiles", "\n".join([head, *lines]))


def _note_failure(error: BaseException, stage: str, record: CompileRecord, failures: list[Unsupported] | None) -> None:
    if isinstance(error, Unsupported):
        logs.log("graph_breaks", f"{record.function} in {record.place} cannot be captured as one graph:\n{error}")
        if failures is not None:
            failures.append(error)
    elif isinstance(error, Exception):
        with contextlib.suppress(AttributeError):
            error._dovetail_stage = stage  # type: ignore[attr-defined]


def describe(fn: Any) -> tuple[str, str]:
    """A callable's name and the place of its definition."""
    target = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
    rest = getattr(fn, "_dovetail_continuation", None)
    if rest is not None:
        code = rest.points[-1].code
        line = next((p[0] for p in code.co_positions() if p[0]), code.co_firstlineno)
        return target.__qualname__, f"{code.co_filename}:{line}"
    if isinstance(target, torch.nn.Module):
        target = type(target).forward
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    return name, f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


# ---------------------------------------------------------------- compile


@overload
def compile(
    model: F, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: Any = ..., mode: str | None = ...,
    options: Mapping[str, Any] | None = ..., disable: bool = ...,
) -> F: ...  # fmt: skip
@overload
def compile(
    model: None = None, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: Any = ...,
    mode: str | None = ..., options: Mapping[str, Any] | None = ..., disable: bool = ...,
) -> Callable[[F], F]: ...  # fmt: skip
def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None,
    mode: str | None = None, options: Mapping[str, Any] | None = None, disable: bool = False,
) -> Any:  # fmt: skip
    """Compile a function, method, callable or `nn.Module`; a call or a decorator.

    model: what to compile; without it the result is a decorator.
    fullgraph: raise `GraphBreakError` where the code cannot be one graph.
    dynamic: True for sizes that may change, False for fixed ones, None to decide by what changes.
    backend: a name from `list_backends()`, one registered for torch.compile, or a callable
        `(gm, example_inputs) -> callable`. None is the default backend.
    mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs".
    options: finer choices than a mode, by name.
    disable: return the model as it is.

    A compiled module is an instance of the model's class and shares its state. Nothing is compiled before the
    first call. Raises InvalidArgument for arguments that make no sense, with the valid ones listed.
    """
    request = Request(
        _flag("fullgraph", fullgraph),
        _dynamic(dynamic),
        _backend(backend),
        checked_mode(mode, options),
        checked_options(options),
    )
    if model is None:
        return lambda fn: fn if disable else _compile(fn, request)
    return model if disable else _compile(model, request)


def _compile(model: Any, request: Request) -> Any:
    if isinstance(model, CompiledModule):
        model = model._orig_mod
    if isinstance(model, torch.nn.Module):
        plain = (request.fullgraph, request.dynamic, request.backend, request.mode, request.user_options)
        return wrap_module(model, request, (_compile_again, plain))
    if isinstance(model, type) or not callable(model):
        raise InvalidArgument(f"dovetail.compile takes a function, a callable object or an nn.Module, not {model!r}")
    return wrap_function(getattr(model, "_dovetail_original", model), request)


def _compile_again(model: torch.nn.Module, *plain: Any) -> torch.nn.Module:
    """What a pickled or copied compiled module becomes: the same request for another original."""
    return _compile(model, Request(*plain))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {value!r}")
    return value


def _dynamic(value: Any) -> bool | None:
    return None if value is None else _flag("dynamic", value)


def _backend(backend: Any) -> Any:
    return None if backend is None else BACKENDS.resolve(backend)


# ---------------------------------------------------------------- control


def disable(fn: Any = None, recursive: bool = True, reason: str | None = None) -> Any:
    """A function that is never compiled when called; a call or a decorator. A compiled one gives its original.

    Capture stops at a call of it, and says `reason`.
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason)
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if not callable(fn) or isinstance(fn, (type, torch.nn.Module)):
        raise InvalidArgument(f"dovetail.disable takes a function, not {fn!r}")
    original = getattr(fn, "_dovetail_original", fn)

    @functools.wraps(original)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]  # PyTorch's own mark, which capture honours
    disabled._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    disabled._torchdynamo_disable_recursive = recursive  # type: ignore[attr-defined]
    return disabled


def run(fn: Any) -> Callable[..., Any]:
    """Call existing compiled code where it fits and the original otherwise; never compile."""
    dispatcher = getattr(fn, "_dovetail_dispatcher", None)
    if dispatcher is None:
        raise InvalidArgument(f"dovetail.run takes what dovetail.compile returned, not {fn!r}")

    def only_run(*args: Any, **kwargs: Any) -> Any:
        return dispatcher.run(args, kwargs)

    return functools.update_wrapper(only_run, dispatcher.fn) if inspect.isfunction(dispatcher.fn) else only_run


def reset() -> None:
    """Forget every compiled entry and every record of compiling, as in a new process."""
    REGISTRY.reset()
    RECORDS.clear()


class set_stance:
    """How calls of compiled functions behave from now on, in every thread; also a context manager and a decorator.

    "default"; "force_eager": run originals; "eager_on_recompile": use what is compiled, run eagerly what does not
    fit; "fail_on_recompile": raise RuntimeError instead. A function's first compilation is no recompilation.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise InvalidArgument(f"unknown stance {stance!r}; the stances are {', '.join(map(repr, STANCES))}")
        self.stance, self.before = stance, REGISTRY.stance
        REGISTRY.set_stance(stance)

    def __enter__(self) -> None:
        REGISTRY.set_stance(self.stance)

    def __exit__(self, *error: Any) -> None:
        REGISTRY.set_stance(self.before)

    def __call__(self, fn: F) -> F:
        REGISTRY.set_stance(self.before)  # as a decorator it applies while `fn` runs, not from here on

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            with _stance(self.stance):
                return fn(*args, **kwargs)

        return with_stance  # type: ignore[return-value]


@contextlib.contextmanager
def _stance(stance: str) -> Iterator[None]:
    before = REGISTRY.stance
    REGISTRY.set_stance(stance)
    try:
        yield
    finally:
        REGISTRY.set_stance(before)


#: False outside of capture, which treats it as True. PyTorch's own function, so that one answer holds for both.
is_compiling = torch.compiler.is_compiling


# ---------------------------------------------------------------- seeing what happened


def explain(fn: Any, *, backend: Any = None, dynamic: bool | None = None) -> Callable[..., ExplainOutput]:
    """`explain(fn)(*args)` compiles and runs `fn` anew and says what was captured, what was not and why."""
    original = fn._orig_mod if isinstance(fn, CompiledModule) else getattr(fn, "_dovetail_original", fn)

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        records: list[CompileRecord] = []
        failures: list[Unsupported] = []
        compiled = _compile(
            original, Request(False, _dynamic(dynamic), _backend(backend), "default", {}, records, failures)
        )
        try:
            compiled(*args, **kwargs)
        except Unsupported:
            if not failures:
                raise
        return explain_records(records, failures)

    return explained


def set_logs(levels: Mapping[str, Any] | None = None, **named: Any) -> None:
    logs.set_logs(levels, **named)


set_logs.__doc__ = logs.set_logs.__doc__
if os.environ.get("DOVETAIL_LOGS"):
    logs.set_logs(logs.parse(os.environ["DOVETAIL_LOGS"]))

__all__ = [
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
