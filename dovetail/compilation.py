"""A compilation: what an earlier process has left of it, or a run of the pipeline; and what is said of it.

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
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail import guards
from dovetail.assembly import assemble, tell_uncompiled
from dovetail.callees import EagerFrame
from dovetail.config import config
from dovetail.diagnostics import logs
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.events import CompileRecord, Events
from dovetail.errors import BackendError, Unsupported
from dovetail.interop.backends import BUILT_IN
from dovetail.ir.callers import PACKAGE
from dovetail.ir.captured import AGAIN, ALONE, ENTERED, FAILED, NO_OVERRIDES, PLAIN, REPEATED, UNDONE, Break, Captured
from dovetail.ir.literals import error_in_words, in_words, steady
from dovetail.ir.records import dataclass
from dovetail.ir.varying import Varying
from dovetail.kept.holds import by_identity
from dovetail.kept.keeping import Keeping
from dovetail.options import Options
from dovetail.request import describe, imported, underlying
from dovetail.runtime.call.program import undone
from dovetail.runtime.dispatch.dispatcher import to_the_end, words_of
from dovetail.runtime.dispatch.failure_policy import REPORT, EagerlyAfter, warn_user
from dovetail.runtime.dispatch.registry import only_run
from dovetail.runtime.gpu.workers import WORKERS

if TYPE_CHECKING:
    from dovetail.request import Request

ONCE = "runs operator by operator, once: it changes what it relies on, as an optimizer's first step does"


@dataclass(frozen=True)
class Compilation:
    """Of one call, for which an entry is wanted: `request` asks for it. `varying`, `recurs`: see `Request.compile`.

    `taken` is the state that it begins in, `keeping` what leaves it to other processes, or takes theirs; None where
    somebody watches the stages. `after` goes on where the graph raises.
    """

    request: Request
    fn: Any
    args: tuple
    kwargs: Mapping[str, Any]
    options: Options
    events: Events
    varying: Varying
    recurs: bool
    after: EagerlyAfter
    taken: guards.Snapshot
    keeping: Keeping | None = None

    @property
    def call(self) -> tuple[Any, tuple, Mapping[str, Any]]:
        return self.fn, self.args, self.kwargs

    def entry(self) -> guards.Entry:
        """Kept or new."""
        keeping = self._keeping()
        kept = None if keeping is None else self._kept_entry(keeping)
        if kept is not None:
            return kept
        if self.options.backend == "dovetail" and torch.cuda.is_initialized():
            WORKERS.start()  # they import Triton meanwhile
        pipeline = imported("dovetail.pipeline", self.events)
        made: guards.Entry = pipeline.compile_entry(replace(self, keeping=keeping))
        return made

    def _keeping(self) -> Keeping | None:
        if self.options.backend != "dovetail" or self.events.watched or config.repro_level >= 4:
            return None
        if self.request.guard_filter is not None:  # what it does is not written down anywhere
            return None
        given = self.request.given
        if not config.warm_start and not given:
            return None
        with self.events.stage("key"):
            return Keeping.of(*self.call, self.options, self.events, self.taken, given)

    def after_failure(self, captured: Captured, error: Exception) -> guards.Entry:
        """An entry with other options where they may help; raises the error where they would not."""
        self.events.record.uncompiled.clear()
        choose = _with_fewer_sizes if self.options.backend in BUILT_IN else _with_constants
        return replace(self, options=choose(self, captured, error), taken=guards.snapshot()).entry()

    def linked(self, captured: Captured) -> Captured:
        """With what its residual calls: the rests of graph breaks, and what each process makes for itself."""
        names: dict[str, Any] = {name: self.request.rest(found) for name, found in captured.continuations.items()}
        names |= {name: made for name, made in self.own().items() if name in captured.names}
        names[AGAIN] = self.after  # the entry is used as long as it says so
        has = captured.names
        if self.options.backend in BUILT_IN:
            known = {REPEATED: AGAIN in has, NO_OVERRIDES: NO_OVERRIDES in has, FAILED: self.after.failed}
            alone = partial(self.request.alone, name=self.request.where(self.fn))
            captured.graph.meta |= {**known, ALONE: alone}
        return replace(captured, names={**has, **names})

    def filtered(self, captured: Captured) -> Captured:
        """Without the guards that the user does not want."""
        keeps = self.request.guard_filter
        return captured if keeps is None else guards.filtered(captured, keeps, *self.call)

    def own(self) -> dict[str, Any]:
        """What each process makes for itself, by the names that a residual has for it."""
        callables = {PLAIN: self.request.plain, ENTERED: self.request.entered, AGAIN: self.after}
        return {**callables, UNDONE: undone} if self.options.backend in BUILT_IN else callables

    @property
    def lasts(self) -> bool:
        """Is the first call not worth a graph that fits no other? Nobody waits for its errors, or watches."""
        first = self.events.record.index == 0 and not self.recurs
        return first and self.options.backend == "dovetail" and not self.events.watched and config.repro_level < 4

    def as_it_is(self) -> guards.Entry:
        """Plain Python for a call that no other will be like. What it calls is not compiled either: the next call will
        have it in its own graph."""
        self.events.artifact("perf_hints", lambda: ONCE)
        kept = {} if self.keeping is None else self.keeping.keep_once()
        return guards.Entry(
            only_run(self.fn), "runs as it is, once", EMPTY_CAPTURE, lambda a, k: [guards.SPENT], once=True, **kept
        )

    def _kept_entry(self, keeping: Keeping) -> guards.Entry | None:
        """What an earlier process has left for this call."""
        events = self.events
        if events.record.index == 0 and keeping.is_once():
            return self.as_it_is()
        try:
            with events.stage("restore"):
                for name, kept in keeping.candidates(self.own()):
                    if by_identity(kept.captured.guards, self.varying.names):
                        continue
                    captured = self.linked(kept.captured)
                    fakes = [given.fake for given in captured.inputs]
                    graph = assemble(kept.plan, captured.graph, fakes, events, keeping.partials(name, kept))
                    with events.stage("guards"):
                        entry = guards.build(captured, self.fn, graph, self.taken)
                    events.captured = captured
                    return self.lasting(replace(entry, kept=name))
        except Exception as error:
            if self.options.strict:
                raise
            events.open.clear()
            events.record.uncompiled.clear()
            why = error_in_words(error)
            events.artifact("perf_hints", lambda: f"an earlier compilation is not used: {why}")
        return None

    def packing(self, captured: Captured) -> Callable[[Any], None] | None:
        """What `keep` will write is made of a plan."""
        return None if self.keeping is None else partial(self.keeping.pack, captured)

    def keep(self, captured: Captured, once: bool) -> dict[str, Any]:
        """Leave it to other processes: fields of the entry."""
        if self.keeping is None:
            return {}
        if once:
            return self.keeping.keep_once()
        if captured.prepared:  # another process finds what fits the second call: its first runs as it is
            self.keeping.keep_once()
        return self.keeping.keep(captured)

    def lasting(self, entry: guards.Entry) -> guards.Entry:
        """The entry as one that is used while `after` says so."""
        return replace(entry, needs=(*entry.needs, weakref.ref(self.after.needed)))


def entry_of(
    request: Request, fn: Any, args: tuple, kwargs: Mapping[str, Any], options: Options, events: Events,
    varying: Varying, recurs: bool,
) -> guards.Entry:  # fmt: skip
    """See `Request.compile`."""
    record = events.record
    events.compiles = options.backend == "dovetail"
    _log_recompile(record)
    after = EagerlyAfter(fn, request.where(fn), options, logs.log, _giving_up(request, fn), request.quiet)
    wanted = Compilation(request, fn, args, kwargs, options, events, varying, recurs, after, guards.snapshot())
    try:
        entry = _plain_entry(request, fn) or wanted.entry()
        _tell_breaks(wanted, entry.captured.breaks)
        for why in record.uncompiled if events.compiles else ():
            tell_uncompiled(record.where, "a graph", why)
            events.artifact("perf_hints", partial(str, f"runs operator by operator: {why.text()}"))
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
            _attach_report(error, wanted)
        raise


def _giving_up(request: Request, fn: Any) -> Any:
    """Has later compilations of `fn` made with other options."""
    return lambda changes: request.unlike.setdefault(id(fn), {}).update(changes)


def _tell_breaks(wanted: Compilation, breaks: Sequence[Break]) -> None:
    events, request = wanted.events, wanted.request
    for found in breaks:
        message = f"graph break in {events.record.function}, {events.record.place}:\n{found.text()}"
        events.tell("broke", found)
        new = BREAKS.meet(found.code, found.reason, found.stack, message)
        if new and found.code == "internal-error" and not request.quiet:
            what = f"dovetail leaves an instruction of {request.where(wanted.fn)} to Python: {found.text()}"
            warn_user(_repro().told(what, wanted.call, wanted.options, None, ()))


def _plain_entry(request: Request, fn: Any) -> guards.Entry | None:
    """Under `config.debug_function`, what runs a function of another name: only functions of that name compile."""
    name = config.debug_function
    target = underlying(fn)
    if name is None or hasattr(fn, "_dovetail_continuation") or getattr(target, "__name__", name) == name:
        return None
    runs = EagerFrame(request.compiled, lambda found: found == name).plain(fn)
    return guards.Entry(runs, f"runs as it is: config.debug_function is {name!r}", EMPTY_CAPTURE, lambda a, k: [])


def _told_to(after: EagerlyAfter, captured: Captured, fn: Any, options: Options) -> None:
    """What it needs when the graph raises. The captured region refers to it, so it must not refer to that."""
    known, graph, place = weakref.ref(captured), captured.graph, describe(fn)

    def inputs(args: tuple, kwargs: Mapping[str, Any]) -> Any:
        found = known()
        return None if found is None else guards.real_inputs(found, fn, args, kwargs)

    def report(stage: str, given: Any, error: BaseException) -> str:
        return _repro().report(stage, error, place, None, options, graph, given)

    after.inputs, after.graph, after.report = inputs, graph.forward, report


def _attach_report(error: BaseException, wanted: Compilation) -> None:
    """Let it say where it happened and how to see it again, if anybody asks. Nothing here refers to the error."""
    stage, captured = wanted.events.current, wanted.events.captured

    def report(error: BaseException) -> str:
        graph = None if captured is None else captured.graph
        given = () if captured is None else guards.real_inputs(captured, *wanted.call)
        told = describe(wanted.fn), wanted.call, wanted.options, graph, given, wanted.varying.names
        return _repro().report(stage, error, *told)

    with contextlib.suppress(AttributeError):
        setattr(error, REPORT, report)


def _repro() -> Any:
    # Nothing of it is needed while nothing fails.
    return importlib.import_module("dovetail.diagnostics.repro")


def _with_fewer_sizes(wanted: Compilation, captured: Captured, error: Exception) -> Options:
    """The options to compile with after all. A mistake of ours with sizes costs compilations, not the program."""
    options, events = wanted.options, wanted.events
    late = captured.sizes is not None and captured.sizes.unbacked and options.capture_dynamic_output_shape_ops
    ours = not isinstance(error, Unsupported)
    if not late and (not captured.symbols or not ours or options.dynamic is False) or ours and options.strict:
        raise error
    what = f"{events.current} failed with {'sizes that are found out' if late else 'symbolic ones'}"
    told = f"{what}: {type(error).__name__}: {error}{_place(error)}"
    events.open.clear()
    if isinstance(error, Unsupported):
        events.artifact("dynamic", lambda: f"sizes are not found out inside the graph: {told}")
    else:
        name, place = describe(wanted.fn)
        aim = "without them" if late else "for constant sizes"
        warn_user(f"dovetail compiles {name} ({place}) {aim}, since {told}. Please report it.")
    return replace(options, capture_dynamic_output_shape_ops=False) if late else replace(options, dynamic=False)


def _with_constants(wanted: Compilation, captured: Captured, error: Exception) -> Options:
    """A user's backend that takes no symbolic sizes gets those of each call."""
    varies = captured.symbols or any(type(given.fake) in (int, float) for given in captured.inputs)
    if wanted.options.dynamic is False or not varies or not isinstance(error, (BackendError, Unsupported)):
        raise error
    wanted.events.open.clear()
    wanted.events.artifact("dynamic", lambda: f"the backend gets constant sizes: {error}")
    return replace(wanted.options, dynamic=False)


def _place(error: Exception) -> str:
    """Which line of ours raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    return f" (dovetail/{ours[-1].filename[len(PACKAGE):]}:{ours[-1].lineno} in {ours[-1].name})" if ours else ""


def tell_captured(events: Events, fn: Any, captured: Captured) -> None:
    """Texts about what has been captured, which later stages have added to."""
    events.artifact("dynamic", lambda: sizes_in_words(fn, captured))
    events.artifact("graph", lambda: _table(captured.graph))
    events.artifact("graph_sizes", lambda: "\n".join(f"{i.source.name()}: {_sizes(i.fake)}" for i in captured.inputs))
    events.artifact("bytecode", lambda: _bytecode(fn, captured))


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
