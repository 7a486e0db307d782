"""A compilation: what an earlier process has left of it, or a run of the pipeline, and the guards of its entry.

Loaded with the first one. Failures are noted with the stage that they come from, and can say how to see them again.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail import guards
from dovetail.assembly import AsCaptured, assemble, called, plain_call
from dovetail.config import config
from dovetail.diagnostics import logs
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.comparing import compared
from dovetail.diagnostics.events import CompileRecord, Events
from dovetail.entered import HOOKS
from dovetail.errors import BackendError, Unsupported
from dovetail.interop.backends import BUILT_IN, call_backend
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
)
from dovetail.ir.literals import error_in_words, in_words, steady
from dovetail.ir.varying import Varying
from dovetail.kept.keeping import Keeping
from dovetail.ops.fake.symbolic.unbacked import discovering
from dovetail.options import Options
from dovetail.request import describe, imported, underlying
from dovetail.runtime.call.program import undone
from dovetail.runtime.dispatch.dispatcher import Dispatcher, to_the_end, words_of
from dovetail.runtime.dispatch.failure_policy import REPORT, EagerlyAfter, warn_user
from dovetail.runtime.dispatch.reentrancy import allowed
from dovetail.runtime.gpu.workers import WORKERS

if TYPE_CHECKING:
    from dovetail.request import Request

ONCE = "runs operator by operator, once: it changes what it relies on, as an optimizer's first step does"


def entry_of(
    request: Request, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, events: Events,
    varying: Varying, recurs: bool,
) -> guards.Entry:  # fmt: skip
    """See `Request.compile`."""
    record = events.record
    _log_recompile(record)
    try:
        after = _after(request, fn, options)
        callables = {PLAIN: request.plain, ENTERED: request.entered, AGAIN: after}
        entry = _plain_entry(request, fn) or _compile_entry(
            fn, args, kwargs, options, events, request.rest, callables, varying, recurs, request.given,
        )  # fmt: skip
        _tell_breaks(request, entry.captured.breaks, (fn, args, kwargs), options, events)
        if entry.captured.breaks and not hasattr(fn, "_dovetail_continuation"):
            entry = replace(entry, call=to_the_end(entry.call))
        entry = guards.for_one_call(entry) if entry.once else entry
        _told_to(after, entry.captured, fn, options)
        record.outcome = "compiled"
        if events.listed:
            record.captured, record.sizes = entry.captured, sizes_in_words(fn, entry.captured)
        return entry
    except BaseException as error:
        record.outcome = f"failed in {events.current}: {error_in_words(error)}"
        _note_failure(error, events)
        if not isinstance(error, Unsupported):
            _attach_report(error, events, fn, args, kwargs, options, varying)
        raise


def _tell_breaks(
    request: Request, breaks: Sequence[Break], call: tuple[Any, ...], options: Options, events: Events
) -> None:
    for found in breaks:
        message = f"graph break in {events.record.function}, {events.record.place}:\n{found.text()}"
        events.tell("broke", found)
        new = BREAKS.meet(found.code, found.reason, found.stack, message)
        if new and found.code == "internal-error" and not request.quiet:
            what = f"dovetail leaves an instruction of {request.where(call[0])} to Python: {found.text()}"
            warn_user(_repro().told(what, call, options, None, ()))


def _plain_entry(request: Request, fn: Any) -> guards.Entry | None:
    """Under `config.debug_function`, what runs a function of another name: only functions of that name compile."""
    name = config.debug_function
    target = underlying(fn)
    if name is None or hasattr(fn, "_dovetail_continuation") or getattr(target, "__name__", name) == name:
        return None
    frameless = importlib.import_module("dovetail.frameless")
    runs = frameless.Frameless(request.compiled, lambda found: found == name).plain(fn)
    return guards.Entry(runs, f"runs as it is: config.debug_function is {name!r}", EMPTY_CAPTURE, lambda a, k: [])


def _after(request: Request, fn: Any, options: Options) -> EagerlyAfter:
    def give_up(changes: dict[str, Any]) -> None:
        request.unlike.setdefault(id(fn), {}).update(changes)

    return EagerlyAfter(fn, request.where(fn), options, logs.log, give_up, request.quiet)


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
    pipeline = imported("dovetail.pipeline", events)
    captured = pipeline.trace(fn, args, kwargs, options, events, varying)
    events.captured = captured
    rests = {name: rest(found) for name, found in captured.continuations.items()}
    after = callables[AGAIN]
    if options.backend in BUILT_IN:
        callables = {**callables, UNDONE: undone}
        names = captured.names
        captured.graph.meta |= {REPEATED: AGAIN in names, NO_OVERRIDES: NO_OVERRIDES in names, FAILED: after.failed}
    rests |= {name: made for name, made in callables.items() if name in captured.names}
    rests[AGAIN] = after  # the entry is used as long as it says so
    captured = replace(captured, names={**captured.names, **rests})
    once = captured.one_shot and not recurs and options.backend == "dovetail"
    if options.backend in BUILT_IN:
        fakes = [given.fake for given in captured.inputs]
        try:
            backend = _STAGES["eager" if once else options.backend](pipeline)
            with discovering(captured.sizes if captured.sizes is not None and captured.sizes.late else None):
                graph = backend(captured.graph, fakes, options, events)
            del captured.graph.meta[FAILED]
            if isinstance(events.plan, AsCaptured) and not captured.repeatable:
                raise Unsupported("data-dependent-size", "a graph that is not compiled would find out too late")
        except Exception as error:
            options = _with_fewer_sizes(fn, captured, options, events, error)
            return _compile_entry(fn, args, kwargs, options, events, rest, callables, varying, recurs, given)
    else:
        try:
            with events.stage("backend"), allowed():
                graph = call_backend(options.backend, captured.graph, guards.inputs_shown(captured, fn, args, kwargs))
                captured.graph.meta[NO_OVERRIDES] = NO_OVERRIDES in captured.names
                graph = _as_called(graph, captured.graph, events)
        except (BackendError, Unsupported) as error:
            options = _with_constants(captured, options, events, error)
            return _compile_entry(fn, args, kwargs, options, events, rest, callables, varying, recurs, given)
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


def _as_called(made: Any, graph: torch.fx.GraphModule, events: Events) -> Callable[..., Any]:
    """What the entry calls: a graph is no module of the program's, so hooks on every module are not for it."""
    if made is graph and not any(vars(graph)[name] for name in HOOKS):
        made = graph.forward
    return called(plain_call(graph), made, graph, events)


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
                captured.graph.meta[FAILED] = after.failed
                rests = {name: rest(each) for name, each in captured.continuations.items()}
                captured = replace(captured, names={**captured.names, **rests, AGAIN: after})
                fakes = [given.fake for given in captured.inputs]
                graph = assemble(kept.plan, captured.graph, fakes, events, keeping.partial(name, kept))
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
    "eager": lambda pipeline: pipeline.as_captured,
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


EMPTY_CAPTURE = Captured(torch.fx.GraphModule({}, torch.fx.Graph()), (), (), "def residual():\n    pass\n", {})
