"""One `dovetail.compile` call's arguments, and a compilation that starts from them: options, stages, reports."""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import inspect
import sys
import traceback
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MethodType
from typing import Any

import torch
import torch.fx

from dovetail import guards
from dovetail.assembly import AsCaptured, assemble
from dovetail.config import config
from dovetail.diagnostics import logs
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.comparing import compared
from dovetail.diagnostics.dump import DumpSink
from dovetail.diagnostics.events import CompileRecord, Events, Sink
from dovetail.diagnostics.profiler import CompileProfiler
from dovetail.diagnostics.times import RECORDS
from dovetail.diagnostics.trace import trace, warned
from dovetail.entered import HOOKS, Entered
from dovetail.errors import BackendError, Unsupported
from dovetail.interop.backends import BACKENDS, BUILT_IN, call_backend
from dovetail.ir.callers import PACKAGE
from dovetail.ir.captured import (
    AGAIN,
    ENTERED,
    FAILED,
    NO_OVERRIDES,
    PLAIN,
    REPEATED,
    UNDONE,
    Break,
    Captured,
    Continuation,
    varying_names,
)
from dovetail.ir.literals import error_in_words, in_words, steady
from dovetail.ir.profiled import titled
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.kept.keeping import Keeping
from dovetail.ops.fake.late import discovering
from dovetail.options import Options
from dovetail.runtime.entry import Dispatcher, to_the_end, words_of, wrap_function
from dovetail.runtime.entry_module import wrap_module
from dovetail.runtime.entry_policy import LISTENERS, REPORT, EagerlyAfter, warn_user
from dovetail.runtime.gpu.workers import WORKERS
from dovetail.runtime.nested import allowed
from dovetail.runtime.program import undone
from dovetail.runtime.undisturbed import changes, undisturbed, without_overrides

LISTENERS.append(warned)

ONCE = "runs operator by operator, once: it changes what it relies on, as an optimizer's first step does"
SETTINGS_OF_A_COMPILATION = (
    "numerics", "fallback_random", "recompile_limit", "strict", "suppress_errors", "capture_scalar_outputs",
    "trace_numpy", "check_kernels", "cudagraphs",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The arguments of one `dovetail.compile` call, checked. Makes entries; a `runtime.entry.Compiler`."""

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

    @cached_property
    def frameless(self) -> Any:
        """Runs functions that are not compiled themselves; see `frameless.Frameless`."""
        return _frameless().Frameless(self.compiled)

    @cached_property
    def entered(self) -> Entered:
        """What a graph break calls, compiled on entry. Why the graph could not go on inside has been told already."""
        return Entered(self.compiled) if self.quiet else replace(self, quiet=True).entered

    @property
    def verbose(self) -> bool:
        return bool(config.verbose)

    def options(self) -> Options:
        """The choices of a compilation that starts now: the arguments, else the settings."""
        backend = BACKENDS.resolve(self.backend)
        settings = {n: getattr(config, n) for n in SETTINGS_OF_A_COMPILATION}
        return Options(
            backend=backend, mode=self.mode or "default", fullgraph=self.fullgraph,
            reorderable_logging_functions=frozenset(config.reorderable_logging_functions),
            capture_dynamic_output_shape_ops=config.capture_dynamic_output_shape_ops and backend in BUILT_IN,
            dynamic=self.dynamic if config.dynamic_shapes else False,
            debug_dir=config.debug_dir if config.compile_debug else None,
            **{**settings, **(self.user_options or {})},
        )  # fmt: skip

    def where(self, fn: Any) -> str:
        name, place = describe(fn)
        return f"{name} ({place})" if place else name

    def title(self, fn: Any) -> str:
        return titled("dovetail:", *describe(fn))

    def outside_reason(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        if any(isinstance(v, torch.fx.Proxy) for v in (*args, *kwargs.values())):
            return "torch.fx is tracing"
        return guards.outside_reason()

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
        return self.frameless.plain(_frameless().frame_of(fn))

    def _plain_entry(self, fn: Any) -> guards.Entry | None:
        """Under `config.debug_function`, what runs a function of another name: only functions of that name compile."""
        name = config.debug_function
        target = underlying(fn)
        if name is None or hasattr(fn, "_dovetail_continuation") or getattr(target, "__name__", name) == name:
            return None
        runs = _frameless().Frameless(self.compiled, lambda found: found == name).plain(fn)
        return guards.Entry(runs, f"runs as it is: config.debug_function is {name!r}", EMPTY_CAPTURE, lambda a, k: [])

    def compiled(self, fn: Any) -> Any:
        """The compiled counterpart of a function or module that uncompiled code calls."""
        if isinstance(fn, torch.nn.Module):
            return wrap_module(fn, self, (_same, ()))
        return wrap_function(fn, self)

    def compile(
        self, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int, reasons: list[list[str]],
        varying: Varying = CONSTANT, recurs: bool = True,
    ) -> guards.Entry:  # fmt: skip
        """One run of the pipeline, reported as it goes."""
        options = replace(self.options(), **self.unlike.get(id(fn), {}))
        record = RECORDS.start(*describe(fn), index, reasons)
        record.dynamic = options.dynamic
        kept = [records for records in (self.records, profiled(options.backend)) if records is not None]
        for records in kept:
            records.append(record)
        dump = DumpSink(options.debug_dir) if options.debug_dir else None
        events = Events(record, [sink for sink in (logs.LogSink(), *self.sinks, dump, trace()) if sink is not None])
        events.listed = bool(kept)
        events.tell("begin")
        _log_recompile(record)
        try:
            after = self._after(fn, options)
            callables = {PLAIN: self.plain, ENTERED: self.entered, AGAIN: after}
            entry = self._plain_entry(fn) or _compile_entry(
                fn, args, kwargs, options, events, self.rest, callables, varying, recurs, self.given,
            )  # fmt: skip
            for found in entry.captured.breaks:
                message = f"graph break in {record.function}, {record.place}:\n{found.text()}"
                events.tell("broke", found)
                new = BREAKS.meet(found.code, found.reason, found.stack, message)
                if new and found.code == "internal-error" and not self.quiet:
                    what = f"dovetail leaves an instruction of {self.where(fn)} to Python: {found.text()}"
                    warn_user(_repro().told(what, (fn, args, kwargs), options, None, ()))
            if entry.captured.breaks and not hasattr(fn, "_dovetail_continuation"):
                entry = replace(entry, call=to_the_end(entry.call))
            entry = guards.for_one_call(entry) if entry.once else entry
            _told_to(after, entry.captured, fn, options)
            record.outcome = "compiled"
            if kept:
                record.captured, record.sizes = entry.captured, sizes_in_words(fn, entry.captured)
            return entry
        except BaseException as error:
            record.outcome = f"failed in {events.current}: {error_in_words(error)}"
            _note_failure(error, events)
            if not isinstance(error, Unsupported):
                _attach_report(error, events, fn, args, kwargs, options, varying)
            raise
        finally:
            events.tell("finish")

    def _after(self, fn: Any, options: Options) -> EagerlyAfter:
        def give_up(changes: dict[str, Any]) -> None:
            self.unlike.setdefault(id(fn), {}).update(changes)

        return EagerlyAfter(fn, self.where(fn), options, logs.log, give_up, self.quiet)


def _told_to(after: EagerlyAfter, captured: Captured, fn: Any, options: Options) -> None:
    """What it needs when the graph raises. The captured region refers to it, so it must not refer to that."""
    known, graph, place = weakref.ref(captured), captured.graph, describe(fn)

    def inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = known()
        return None if found is None else guards.real_inputs(found, fn, args, kwargs)

    def report(stage: str, given: Any, error: BaseException) -> str:
        return _repro().report(stage, error, place, None, options, graph, given)

    after.inputs, after.graph, after.report = inputs, graph.forward, report


def _attach_report(
    error: BaseException, events: Events, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options,
    varying: Varying,
) -> None:  # fmt: skip
    """Let it say where it happened and how to see it again, if anybody asks. Nothing here refers to the error."""
    stage, captured = events.current, events.captured

    def report(error: BaseException) -> str:
        graph = None if captured is None else captured.graph
        given = () if captured is None else guards.real_inputs(captured, fn, args, kwargs)
        call, names = (fn, args, kwargs), varying.names
        return _repro().report(stage, error, describe(fn), call, options, graph, given, names)

    with contextlib.suppress(AttributeError):
        setattr(error, REPORT, report)


def _pipeline(events: Events) -> Any:
    # It imports every phase and llvmlite: 0.2 s that only a program that compiles should pay.
    name = "dovetail.pipeline"
    with contextlib.nullcontext() if name in sys.modules else events.stage("imports"):
        return importlib.import_module(name)


def _repro() -> Any:
    # Nothing of it is needed while nothing fails.
    return importlib.import_module("dovetail.diagnostics.repro")


def _compile_entry(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, events: Events,
    rest: Callable[[Continuation], Dispatcher], callables: Mapping[str, Any], varying: Varying, recurs: bool,
    given: Mapping[str, bytes],
) -> guards.Entry:  # fmt: skip
    taken = guards.snapshot()
    keeping = _keeping(fn, args, kwargs, options, events, taken, given)
    entry = None if keeping is None else _kept_entry(keeping, fn, rest, callables, taken)
    if entry is not None:
        return entry
    if options.backend == "dovetail" and torch.cuda.is_initialized():
        WORKERS.start()  # they import Triton meanwhile
    pipeline = _pipeline(events)
    captured = pipeline.trace(fn, args, kwargs, options, events, varying)
    events.captured = captured
    rests = {name: rest(found) for name, found in captured.continuations.items()}
    after = callables[AGAIN]
    if options.backend in BUILT_IN:
        callables = {**callables, UNDONE: undone}
        captured.graph.meta[REPEATED] = AGAIN in captured.names
        captured.graph.meta[FAILED] = after.failed
    rests |= {name: made for name, made in callables.items() if name in captured.names}
    rests[AGAIN] = after  # the entry is used as long as it says so
    captured = replace(captured, names={**captured.names, **rests})
    once = captured.passing and not recurs and options.backend == "dovetail"
    if options.backend in BUILT_IN:
        fakes = [given.fake for given in captured.inputs]
        try:
            backend = _STAGES["eager" if once else options.backend](pipeline)
            with discovering(captured.sizes if captured.sizes is not None and captured.sizes.late else None):
                graph = backend(captured.graph, fakes, options, events)
            del captured.graph.meta[FAILED]
            events.plan = AsCaptured() if graph is captured.graph else events.plan
            if graph is captured.graph and not captured.repeatable:
                raise Unsupported("data-dependent-size", "a graph that is not compiled would find out too late")
        except Exception as error:
            options = _with_fewer_sizes(fn, captured, options, events, error)
            return _compile_entry(fn, args, kwargs, options, events, rest, callables, varying, recurs, given)
    else:
        try:
            with events.stage("backend"), allowed():
                graph = call_backend(options.backend, captured.graph, guards.inputs_shown(captured, fn, args, kwargs))
        except (BackendError, Unsupported) as error:
            options = _with_constants(captured, options, events, error)
            return _compile_entry(fn, args, kwargs, options, events, rest, callables, varying, recurs, given)
    graph = _as_called(graph, captured)
    if config.repro_level >= 4 and not once:
        graph = compared(graph, _reference(captured, options, events), after.wrong)
    guards.refuse_specialized(captured)
    kept = {} if keeping is None else keeping.keep_once() if once else keeping.keep(captured, events.plan)
    events.artifact("dynamic", lambda: sizes_in_words(fn, captured))
    events.artifact("graph", lambda: _table(captured.graph))
    events.artifact("graph_sizes", lambda: "\n".join(f"{i.source.name()}: {_sizes(i.fake)}" for i in captured.inputs))
    events.artifact("bytecode", lambda: _bytecode(fn, captured))
    with events.stage("guards"):
        built = guards.build(captured, fn, graph, taken)
    events.artifact("guards", lambda: built.text)
    if once:
        events.artifact("perf_hints", lambda: ONCE)
    return replace(built, once=once, needs=(*built.needs, weakref.ref(after.needed)), **kept)


def _as_called(graph: Any, captured: Captured) -> Callable[..., Any]:
    """What the entry calls: a graph is no module of the program's, so hooks on every module are not for it."""
    if graph is captured.graph and not any(vars(graph)[name] for name in HOOKS):
        graph = graph.forward
    graph = undisturbed(graph, changes(captured.graph.graph))
    return without_overrides(graph) if NO_OVERRIDES in captured.names else graph


def _keeping(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, events: Events,
    taken: guards.Snapshot, given: Mapping[str, bytes],
) -> Keeping | None:  # fmt: skip
    """What leaves this compilation to other processes, or takes theirs; None where somebody watches the stages."""
    if options.backend != "dovetail" or events.watched or config.repro_level >= 4:
        return None
    if not config.warm_start and not given:
        return None
    with events.stage("key"):
        return Keeping.of(fn, args, kwargs, options, events, taken, given)


def _kept_entry(
    keeping: Keeping, fn: Any, rest: Callable[[Continuation], Dispatcher], callables: Mapping[str, Any],
    taken: guards.Snapshot,
) -> guards.Entry | None:  # fmt: skip
    """What an earlier process has left for this call."""
    events, after = keeping.events, callables[AGAIN]
    if events.record.index == 0 and keeping.is_once():
        events.artifact("perf_hints", lambda: ONCE)
        return guards.Entry(fn, "runs as it is, once", EMPTY_CAPTURE, lambda a, k: [], once=True)
    try:
        with events.stage("restore"):
            for name, kept in keeping.candidates({**callables, UNDONE: undone}):
                captured = kept.captured
                captured.graph.meta |= {REPEATED: AGAIN in captured.names, FAILED: after.failed}
                rests = {name: rest(each) for name, each in captured.continuations.items()}
                captured = replace(captured, names={**captured.names, **rests, AGAIN: after})
                fakes = [given.fake for given in captured.inputs]
                graph = assemble(kept.plan, captured.graph, fakes, events, keeping.partial(name, kept))
                graph = undisturbed(graph, kept.changes)
                graph = without_overrides(graph) if NO_OVERRIDES in captured.names else graph
                with events.stage("guards"):
                    entry = guards.build(captured, fn, graph, taken)
                events.captured = captured
                return replace(entry, needs=(*entry.needs, weakref.ref(after.needed)), kept=name)
    except Exception as error:
        if keeping.options.strict:
            raise
        events.open.clear()
        why = error_in_words(error)
        events.artifact("perf_hints", lambda: f"an earlier compilation is not used: {why}")
    return None


def _reference(captured: Captured, options: Options, events: Events) -> Callable[..., Any]:
    """The graph that values are compared with under `config.repro_level = 4`."""
    if config.repro_after != "aot" or options.backend not in BUILT_IN:
        return captured.graph.forward
    pipeline = importlib.import_module("dovetail.pipeline")
    return pipeline.compile_aten(captured.graph, [given.fake for given in captured.inputs], options, events)


def _with_fewer_sizes(fn: Any, captured: Captured, options: Options, events: Events, error: Exception) -> Options:
    """The options to compile with after all. A mistake of ours with sizes costs compilations, not the program."""
    late = captured.sizes is not None and captured.sizes.late and options.capture_dynamic_output_shape_ops
    ours = not isinstance(error, Unsupported)
    if not late and (not captured.symbols or not ours or options.dynamic is False) or ours and options.strict:
        raise error
    what = f"{events.current} failed with {'sizes that are found out' if late else 'symbolic ones'}"
    told = f"{what}: {type(error).__name__}: {error}{_place(error)}"
    events.open.clear()
    if isinstance(error, Unsupported):
        events.artifact("dynamic", lambda: f"sizes are not found out inside the graph: {told}")
    else:
        name, place = describe(fn)
        aim = "without them" if late else "for constant sizes"
        warn_user(f"dovetail compiles {name} ({place}) {aim}, since {told}. Please report it.")
    return replace(options, capture_dynamic_output_shape_ops=False) if late else replace(options, dynamic=False)


def _with_constants(captured: Captured, options: Options, events: Events, error: Exception) -> Options:
    """A user's backend that takes no symbolic sizes gets those of each call."""
    varies = captured.symbols or any(type(given.fake) in (int, float) for given in captured.inputs)
    if options.dynamic is False or not varies:
        raise error
    events.open.clear()
    events.artifact("dynamic", lambda: f"the backend gets constant sizes: {error}")
    return replace(options, dynamic=False)


def _place(error: Exception) -> str:
    """Which line of ours raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    return f" (dovetail/{ours[-1].filename[len(PACKAGE):]}:{ours[-1].lineno} in {ours[-1].name})" if ours else ""


#: How each built-in backend compiles a captured graph: `(graph, fakes, options, events) -> callable`.
_STAGES: dict[str, Callable[[Any], Callable[..., Callable[..., Any]]]] = {
    "eager": lambda pipeline: lambda graph, fakes, options, events: graph,
    "aot_eager": lambda pipeline: pipeline.compile_aten,
    "aot_eager_decomp_partition": lambda pipeline: pipeline.compile_aten,
    "dovetail": lambda pipeline: pipeline.compile_graph,
}


def _bytecode(fn: Any, captured: Captured) -> str:
    """What was there, and what runs around the graph instead."""
    rest = getattr(fn, "_dovetail_continuation", None)
    code = rest.points[-1].code if rest is not None else getattr(underlying(fn), "__code__", None)
    before = dis.Bytecode(code).dis() if code is not None else "(none)\n"
    return f"ORIGINAL BYTECODE {describe(fn)[0]}\n{steady(before)}\nRESIDUAL PROGRAM\n{captured.residual}"


def sizes_in_words(fn: Any, captured: Captured) -> str:
    return words_of(fn)(guards.sizes_report(captured))


def _table(graph: torch.fx.GraphModule) -> str:
    rows = [(n.op, n.name, *map(steady, map(str, (n.target, n.args, n.kwargs)))) for n in graph.graph.nodes]
    return "\n".join("  ".join(cell.ljust(24) for cell in row).rstrip() for row in rows)


def _sizes(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else in_words(value)


def _log_recompile(record: CompileRecord) -> None:
    if not record.reasons:
        return
    head = f"Recompiling function {record.function} in {record.place}\n    triggered by the following guard failure(s):"
    count = len(record.reasons)
    firsts = [f"    - entry {count - 1 - k}: {failed[0]}" for k, failed in enumerate(record.reasons)]
    every = [f"    - entry {count - 1 - k}: {reason}" for k, failed in enumerate(record.reasons) for reason in failed]
    logs.log("recompiles", "\n".join([head, *(every if config.verbose else firsts)]), record.place)
    logs.log("recompiles_verbose", "\n".join([head, *every]), record.place)


def _note_failure(error: BaseException, events: Events) -> None:
    record = events.record
    if isinstance(error, Unsupported):
        events.tell("broke", error, True)
        message = f"{record.function} in {record.place} cannot be captured as one graph:\n{error}"
        BREAKS.meet(error.code, error.reason, error.stack, message)
        record.failure = Break(error.code, error.reason, error.remedy, error.stack, error.refusals)
    elif isinstance(error, Exception):
        with contextlib.suppress(AttributeError):
            error._dovetail_stage = events.current  # type: ignore[attr-defined]


def _resuming() -> Any:
    # A program without graph breaks does without it, and one whose parts are all on disk without the rest of capture.
    return importlib.import_module("dovetail.capture.breaks.resume")


def _frameless() -> Any:
    # It assembles bytecode, which takes a library that few programs need.
    return importlib.import_module("dovetail.frameless")


def _same(module: torch.nn.Module) -> torch.nn.Module:
    return module


EMPTY_CAPTURE = Captured(torch.fx.GraphModule({}, torch.fx.Graph()), (), (), "def residual():\n    pass\n", {})


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


