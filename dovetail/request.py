"""One `dovetail.compile` call's arguments, and the compilations that start from them."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail.callees import CompileOnEntry, EagerFrame, frame_of
from dovetail.config import config
from dovetail.diagnostics import logs
from dovetail.diagnostics.dump import DumpSink
from dovetail.diagnostics.events import CompileRecord, Events, Sink
from dovetail.diagnostics.profiler import CompileProfiler
from dovetail.diagnostics.times import RECORDS
from dovetail.diagnostics.trace import trace, warned
from dovetail.interop import failed_ranks, torch_settings
from dovetail.interop.backends import BACKENDS, BUILT_IN
from dovetail.interop.data_parallel import bucket_bytes
from dovetail.ir.captured import Continuation, varying_names
from dovetail.ir.outside import outside_reason
from dovetail.ir.process import UNSEEN
from dovetail.ir.profiled import titled
from dovetail.ir.records import dataclass
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.loading import loaded
from dovetail.options import Options
from dovetail.runtime.dispatch.compiled_module import wrap_module
from dovetail.runtime.dispatch.dispatcher import Dispatcher, wrap_function
from dovetail.runtime.dispatch.failure_policy import LISTENERS

if TYPE_CHECKING:
    from dovetail.guards import Entry

LISTENERS.append(warned)

SETTINGS_OF_A_COMPILATION = (
    "numerics", "fallback_random", "recompile_limit", "strict", "suppress_errors",
    "trace_numpy", "check_kernels", "cudagraphs", "fewer_collectives",
)  # fmt: skip

ARGUMENTS = ("fullgraph", "dynamic", "backend", "mode", "user_options", "name", "guard_filter", "varying")


@dataclass(frozen=True)
class Request:
    """The arguments of one `dovetail.compile` call, checked. Makes entries; a `dispatcher.Compiler`."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: Any = None
    mode: str | None = None
    user_options: Mapping[str, Any] | None = None
    records: list[CompileRecord] | None = None  # where explain wants this request's compilations listed
    sinks: tuple[Sink, ...] = ()  # what else takes the texts of stages
    quiet: bool = False  # is what runs eagerly after all not worth a warning?
    rests: dict[Any, Dispatcher] = field(default_factory=dict, compare=False, repr=False)  # what follows graph breaks
    unlike: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)  # by functions' ids:
    # other options, after what has failed with these
    given: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)  # compilations out of a file
    name: str | None = None  # shown before the function's own
    guard_filter: Any = None  # says which guards are worth checking
    varying: frozenset[str] = frozenset()  # the names of numbers and sizes that vary, as the user says

    @property
    def arguments(self) -> dict[str, Any]:
        """What makes an equal request for something else."""
        return {name: getattr(self, name) for name in ARGUMENTS}

    @cached_property
    def eager_frame(self) -> EagerFrame:
        """Runs functions that are not compiled themselves."""
        return EagerFrame(self.compiled)

    @cached_property
    def entered(self) -> CompileOnEntry:
        """What a graph break calls, compiled on entry. Why the graph could not go on inside has been told already."""
        return CompileOnEntry(self.compiled) if self.quiet else replace(self, quiet=True).entered

    @property
    def verbose(self) -> bool:
        return bool(config.verbose)

    def options(self) -> Options:
        """The choices of a compilation that starts now: the arguments, else the settings."""
        backend = BACKENDS.resolve(self.backend)
        torchs = torch_settings.changed()
        dynamic = torchs.pop("dynamic", None)
        scalars = torchs.pop("capture_scalar_outputs", config.capture_scalar_outputs)
        settings = {n: getattr(config, n) for n in SETTINGS_OF_A_COMPILATION} | torchs
        return Options(
            backend=backend, mode=self.mode or "default", fullgraph=self.fullgraph,
            reorderable_logging_functions=frozenset(config.reorderable_logging_functions),
            capture_dynamic_output_shape_ops=config.capture_dynamic_output_shape_ops and backend in BUILT_IN,
            capture_scalar_outputs=scalars or self.fullgraph,
            dynamic=(dynamic if self.dynamic is None else self.dynamic) if config.dynamic_shapes else False,
            debug_dir=config.debug_dir if config.compile_debug else None,
            **{**settings, **(self.user_options or {})},
        )  # fmt: skip

    def under(self, backend: Any) -> Request:
        """The same with another backend, which shares nothing that was compiled; itself, where that is its own."""
        if BACKENDS.resolve(self.backend) is backend:
            return self
        return replace(self, backend=backend, rests={}, unlike={}, given={})

    def described(self, fn: Any) -> tuple[str, str]:
        """The function's name, after that of the request, and the place of its definition."""
        name, place = describe(fn)
        return f"{self.name}: {name}" if self.name else name, place

    def where(self, fn: Any) -> str:
        name, place = self.described(fn)
        return f"{name} ({place})" if place else name

    def title(self, fn: Any) -> str:
        return titled("dovetail:", *self.described(fn))

    def outside_reason(self, args: tuple, kwargs: Mapping[str, Any]) -> str | None:
        if any(isinstance(v, torch.fx.Proxy) for v in (*args, *kwargs.values())):
            return "torch.fx is tracing"
        return outside_reason()

    def rest(self, found: Continuation) -> Dispatcher:
        """The dispatcher of what follows a graph break; the same one for the same rest, so that loops converge."""
        key = found.key
        if key not in self.rests:
            self.rests[key] = Dispatcher(_resuming().eager(found), self)
        self.rests[key].varying |= varying_names(found)
        return self.rests[key]

    def plain(self, fn: Any) -> Any:
        """A function marked with `disable(recursive=False)`, or a method that is one, as compiled code calls it."""
        if isinstance(fn, MethodType):
            return MethodType(self.plain(fn.__func__), fn.__self__)
        return self.eager_frame.plain(frame_of(fn))

    def compiled(self, fn: Any) -> Any:
        """The compiled counterpart of a function or module that uncompiled code calls."""
        if isinstance(fn, torch.nn.Module):
            return wrap_module(fn, self, (_same, ()))
        return wrap_function(fn, self)

    def alone(self, fn: Any, name: str) -> Any:
        """The compiled counterpart of a function that has to be one graph. `name`: of what it belongs to."""
        return wrap_function(fn, replace(self, fullgraph=True, quiet=True, name=name, rests={}, unlike={}, given={}))

    def compile(
        self, fn: Any, args: tuple, kwargs: Mapping[str, Any], index: int, reasons: list[list[str]],
        varying: Varying = CONSTANT, recurs: bool = True,
    ) -> Entry:  # fmt: skip
        """One run of the pipeline, reported as it goes."""
        failed_ranks.listen()
        buckets = bucket_bytes(fn, (*args, *kwargs.values()))
        options = replace(self.options(), buckets=buckets, **self.unlike.get(id(fn), {}))
        record = RECORDS.start(*self.described(fn), index, reasons)
        record.dynamic = options.dynamic
        kept = [records for records in (self.records, profiled(options.backend)) if records is not None]
        for records in kept:
            records.append(record)
        dump = DumpSink(options.debug_dir) if options.debug_dir else None
        events = Events(record, [sink for sink in (logs.LogSink(), *self.sinks, dump, trace()) if sink is not None])
        events.listed = bool(kept)
        events.tell("begin")
        try:
            made = imported("dovetail.compilation", events)
            varying = replace(varying, names=varying.names | self.varying) if self.varying else varying
            return made.entry_of(self, fn, args, kwargs, options, events, varying, recurs)
        finally:
            events.tell("finish")


def imported(name: str, events: Events) -> Any:
    """A module that only a program that compiles should wait for. Who was interrupted while it waited has left the
    thread that loads it at work."""
    if name in sys.modules:
        return importlib.import_module(name)
    with events.stage("imports"):
        module = loaded(name)
    UNSEEN.grow_old()
    return module


def _resuming() -> Any:
    # A program without graph breaks does without it, and one whose parts are all on disk without the rest of capture.
    return importlib.import_module("dovetail.capture.breaks.resume")


def _same(module: torch.nn.Module) -> torch.nn.Module:
    return module


def profiled(backend: Any) -> list[CompileRecord] | None:
    return backend.records if isinstance(backend, CompileProfiler) else None


def describe(fn: Any) -> tuple[str, str]:
    """A callable's name and the place of its definition; of what follows a graph break, that of the break."""
    target = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
    if hasattr(fn, "_dovetail_continuation"):
        return target.__qualname__, fn._dovetail_place
    target = underlying(target)
    code = getattr(target, "__code__", None)
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    return name, f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def underlying(fn: Any) -> Any:
    """The Python function that runs when `fn` is called, as far as that can be told."""
    target = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
    if isinstance(target, torch.nn.Module):
        target = inspect.getattr_static(type(target), "forward")
    return getattr(target, "__func__", target)
