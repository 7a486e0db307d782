"""The stages of one compilation, in order. No other file names them all.

    capture    run the bytecode symbolically: a torch-level graph, guards, residual code
    normalize  the graph on fake tensors: functional ATen operators
    autograd   which half computes what, where gradients are wanted
    lower      each operator as loops over symbolic indices
    schedule   which loops share a kernel, and where temporaries live
    codegen    kernels as LLVM IR, the host program as Python
    runtime    machine code, what a call needs around it, and a callable
    guards     the residual code around the callable, behind what it relies on: an entry

`events` times, logs and dumps each stage's output; the stages know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail import attention, guards, targets
from dovetail.assembly import (
    AsCaptured,
    Built,
    Compiled,
    OnGpu,
    Operators,
    Partial,
    Parts,
    Plan,
    Single,
    assemble,
    called,
    inference,
    plain_call,
    program_call,
    training,
    written_by,
)
from dovetail.autograd import draws, partition, unrepeatable
from dovetail.autograd.partial_backward import tells_sizes, without
from dovetail.autograd.partition import exposed
from dovetail.callees import HOOKS
from dovetail.capture.driver import capture, capture_with_breaks
from dovetail.capture.interpreter.tracing_log import Watch
from dovetail.capture.numbers.number_cuts import Piece, cut, takes_numbers_out
from dovetail.codegen.host import checked, staged
from dovetail.codegen.host import program as host
from dovetail.codegen.host.library_calls import HAS_OUT
from dovetail.compilation import ONCE, tell_captured
from dovetail.config import config
from dovetail.diagnostics.events import Events
from dovetail.diagnostics.kernels import kernels_text
from dovetail.diagnostics.values import compared
from dovetail.errors import InternalError, Unsupported
from dovetail.interop.backends import BUILT_IN, call_backend
from dovetail.ir.aten import (
    Apart,
    AtenGraph,
    JointGraph,
    KeptWhole,
    NotDifferentiable,
    Pair,
    parts_of,
    results_of,
    subprograms,
)
from dovetail.ir.captured import FAILED, NO_OVERRIDES, REPEATED, Captured
from dovetail.ir.checks import assumed
from dovetail.ir.devices import traits
from dovetail.ir.graphtext import graph_text
from dovetail.ir.liveness import writes
from dovetail.ir.loops import Batch, Group, Program
from dovetail.ir.records import dataclass
from dovetail.ir.settings import turns_settings
from dovetail.ir.staged import Part, Ref, Staged
from dovetail.ir.text import fusion_text, program_text
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.lower import in_stages, in_turns, lower
from dovetail.normalize import normalize, normalize_joint
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.recording.templates import TEMPLATES
from dovetail.normalize.text import aten_text
from dovetail.normalize.wrapper_tensors import take_apart
from dovetail.ops.calls.autograd_calls import needs_autograd, needs_engine, without_gradients
from dovetail.ops.fake.symbolic.number import NumberNeeded
from dovetail.ops.fake.symbolic.unbacked import discovering
from dovetail.ops.fake.wrapped import is_wrapper
from dovetail.options import Options
from dovetail.runtime.call.autograd import CompiledPair, partly_of
from dovetail.runtime.call.overlap import Overlap, several_in_one_place
from dovetail.runtime.call.pieces import run_in_pieces
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call
from dovetail.runtime.call.view_replay import compile_output_builder
from dovetail.runtime.call.wrapped import Again, depends, put_together
from dovetail.runtime.call.wrapped import differentiable as differentiable_whole
from dovetail.runtime.call.wrapped import inference as inference_whole
from dovetail.runtime.dispatch.reentrancy import allowed
from dovetail.schedule import gather, graph_facts, plan_memory, reuse, schedule, unrecordable

if TYPE_CHECKING:
    from dovetail.compilation import Compilation

TEMPLATES.update(attention.TEMPLATES)


def compile_entry(wanted: Compilation) -> guards.Entry:
    """An entry for one call, phase by phase."""
    options, events = wanted.options, wanted.events
    captured = trace(wanted.fn, wanted.args, wanted.kwargs, options, events, wanted.varying)
    events.captured, events.plan = captured, None
    captured = wanted.linked(captured)
    once = captured.one_shot and not wanted.recurs and options.backend == "dovetail"
    events.on_plan = None if once else wanted.packing(captured)
    try:
        graph = _backend(wanted, captured, "eager" if once else options.backend)
    except Exception as error:
        return wanted.after_failure(captured, error)
    finally:
        events.on_plan = None  # programs refer to `events`, and may not keep the call's arguments
    if config.repro_level >= 4 and not once:
        graph = compared(graph, _reference(captured, options, events), wanted.after.wrong)
    guards.refuse_specialized(captured)
    kept = wanted.keep(captured, once)
    tell_captured(events, wanted.fn, captured)
    with events.stage("guards"):
        captured = wanted.filtered(captured)
        entry = guards.build(captured, wanted.fn, graph, wanted.taken)
    events.artifact("guards", lambda: entry.text)
    if once:
        events.artifact("perf_hints", lambda: ONCE)
    return wanted.lasting(replace(entry, once=once, **kept))


def _backend(wanted: Compilation, captured: Captured, backend: Any) -> Compiled:
    """What a backend makes of the captured graph: a callable of its inputs that gives its outputs."""
    graph, options, events = captured.graph, wanted.options, wanted.events
    fakes = [given.fake for given in captured.inputs]
    if backend not in BUILT_IN:
        with events.stage("backend"), allowed():
            made = call_backend(backend, graph, guards.inputs_shown(captured, *wanted.call))
        if made is graph and not any(vars(graph)[name] for name in HOOKS):
            made = graph.forward  # it is no module of the program's, so hooks on every module are not for it
        graph.meta[NO_OVERRIDES] = NO_OVERRIDES in captured.names
        return called(plain_call(graph), made, graph, events)
    with discovering(captured.sizes if captured.sizes is not None and captured.sizes.unbacked else None):
        made = _COMPILE[backend](graph, fakes, options, events)
    del graph.meta[FAILED]
    if isinstance(events.plan, AsCaptured) and not captured.repeatable:
        raise Unsupported("data-dependent-size", "a graph that is not compiled would find out too late")
    return made


def _reference(captured: Captured, options: Options, events: Events) -> Compiled:
    """The graph that values are compared with under `config.repro_level = 4`."""
    if config.repro_after != "aot" or options.backend not in BUILT_IN:
        forward: Compiled = captured.graph.forward
        return forward
    return compile_aten(captured.graph, [given.fake for given in captured.inputs], options, events)


def trace(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], options: Options, events: Events,
    varying: Varying = CONSTANT,
) -> Captured:  # fmt: skip
    """Capture one call of `fn`, up to the first graph break if it may have any.

    `varying` says which numbers and sizes were seen to change: they become inputs of the graph.

    Raises Unsupported, with the user's line, where capture can neither go on nor break.
    """
    source, bytecode = events.stream("trace_source"), events.stream("trace_bytecode")
    watch = Watch(source, bytecode) if source or bytecode else None
    with events.stage("capture"):
        captured = (capture if options.fullgraph else capture_with_breaks)(fn, args, kwargs, options, varying, watch)
    events.artifact("graph_code", lambda: graph_text(captured.graph.graph))
    return captured


def as_captured(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The `eager` backend: PyTorch runs the graph."""
    events.planned(AsCaptured(plain_call(graph)))
    return assemble(events.plan, graph, fakes, events)


def compile_graph(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The default backend: a callable of the graph's inputs that returns its outputs."""
    return Stages(graph, fakes, options, events, build).compiled()


def compile_aten(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The `aot_eager` backend: stop after the graphs, run operators one by one, drawing and rounding as eager."""
    options = replace(options, fallback_random=True, numerics="eager")
    return Stages(graph, fakes, options, events, _operators).compiled()


#: How each built-in backend compiles a captured graph.
_COMPILE: dict[str, Callable[[torch.fx.GraphModule, Sequence[Any], Options, Events], Compiled]] = {
    "eager": as_captured,
    "aot_eager": compile_aten,
    "aot_eager_decomp_partition": compile_aten,
    "dovetail": compile_graph,
}

MOST_PARTIAL = 8  # backward programs of a function for some of its results; further ones run operator by operator

#: Compiles one functional graph, `(graph, consumes, options, events, prefix of stages)`; None where it cannot.
#: `consumes`: its callable takes a list of the inputs, which it empties.
Builder = Callable[[AtenGraph, bool, Options, Events, str], Built | None]


@dataclass(frozen=True)
class Stages:
    """What becomes of a captured graph, whose inputs look like `fakes`."""

    graph: torch.fx.GraphModule
    fakes: Sequence[Any]
    options: Options
    events: Events
    builder: Builder

    def compiled(self) -> Compiled:
        graph, fakes, events = self.graph, self.fakes, self.events
        with_numbers = takes_numbers_out(graph.graph)
        if with_numbers and (pieces := cut(graph, fakes)) is not None:
            return self.in_pieces(pieces)
        if with_numbers:
            self.hint("runs operator by operator: it computes with numbers that it takes out of tensors")
        as_it_is = turns_settings(graph.graph) or needs_engine(graph.graph, fakes) or with_numbers
        used = None if as_it_is else without_gradients(graph.graph)
        if used is not None and any(is_wrapper(n.meta.get("fake")) for n in graph.graph.nodes):
            found = None if used else self.apart()
            return found or as_captured(graph, fakes, self.options, events)
        plan, partial = (None, None) if used is None else self.plan(used)
        if plan is None:
            return as_captured(graph, fakes, self.options, events)
        events.planned(plan)
        return assemble(plan, graph, fakes, events, partial)

    def in_pieces(self, pieces: Sequence[Piece]) -> Compiled:
        """Each piece as a graph of its own. They are not kept: one callable is made of several plans."""
        graph, events, made = self.graph, self.events, []
        events.on_plan = None
        for piece in pieces:
            part, fakes = piece.graph(graph), piece.fakes()
            part.meta |= {**graph.meta, REPEATED: False}
            with torch.set_grad_enabled(piece.grad):
                inside = replace(self, graph=part, fakes=fakes)
                made.append(part.forward if piece.alone else inside.compiled())
        events.plan = None
        run, text = run_in_pieces(graph.graph, pieces, made)
        events.artifact("call_code", lambda: text)
        return called(plain_call(graph), run, graph, events)

    def plan(self, used: Sequence[int]) -> tuple[Plan | None, Partial | None]:
        """What the graph becomes, None if PyTorch is to run it, and what makes backward programs for some of its
        results. `used`: see `without_gradients`."""
        graph, fakes, events = self.graph, self.fakes, self.events
        late = any(n.target is assumed and not n.args[1] for n in graph.graph.nodes)
        trains = needs_autograd(fakes) and not used
        try:
            with events.stage("normalize"):
                found = (normalize_joint if trains else normalize)(graph, fakes, self.options)
            if isinstance(found, JointGraph):
                return self.train(found, late)
        except NumberNeeded:
            return None, None  # PyTorch's operators take the number when they run
        except NotDifferentiable as error:
            self.hint(f"runs operator by operator, for lack of a backward graph: {error}")
            return None, None
        events.artifact("aot_graphs", lambda: aten_text(found))
        overlaps = several_in_one_place(fakes, [k for k, _ in found.mutated])
        program = None if overlaps else self.builder(found, False, self.options, events, "")
        if program is None:
            return None, None
        return inference(program, found, graph, needs_autograd(fakes), used, late), None

    def train(self, joint: JointGraph, late: bool) -> tuple[Plan | None, Partial | None]:
        pair = self.pair(joint)
        halves = None if several_in_one_place(self.fakes, written_by(joint)) else self.halves(pair)
        if halves is None:
            return None, None
        plan = training(halves, joint, pair, self.graph, draws(pair.forward), unrepeatable(joint), late)
        return plan, self.partial(joint, pair)

    def pair(self, joint: JointGraph) -> Pair:
        self.events.artifact("aot_joint_graphs", lambda: aten_text(joint.aten))
        with self.events.stage("autograd"):
            pair = partition(joint)
        text = lambda: f"forward\n{aten_text(pair.forward)}\nbackward\n{aten_text(pair.backward)}"
        self.events.artifact("aot_graphs", text)
        return pair

    def halves(self, pair: Pair) -> tuple[Built, Built] | None:
        forward = self.builder(pair.forward, False, self.options, self.events, "forward ")
        backward = self.builder(pair.backward, True, self.options, self.events, "backward ")
        return None if forward is None or backward is None else (forward, backward)

    def partial(self, joint: JointGraph, pair: Pair) -> Partial:
        """Makes the backward program for some of the tangents, when a call first needs it."""
        tangents, events = [name for name, _ in joint.tangents], self.events
        left = MOST_PARTIAL

        def made(there: int) -> tuple[Built, bool]:
            nonlocal left
            absent = {name for k, name in enumerate(tangents) if not there >> k & 1}
            graph = without(pair.backward, {*tangents}, absent)
            remove_dead(graph)
            events.artifact("aot_graphs", lambda: f"backward, without {', '.join(sorted(absent))}\n{aten_text(graph)}")
            left -= 1
            few = left >= 0 or in_stages(graph) is not None
            program = (self.builder if few else _operators)(graph, True, self.options, events, "backward ")
            if program is None:
                raise InternalError("codegen", "a part of a backward pass cannot be compiled, though the whole can")
            if events.on_partial is not None:
                events.on_partial(there, program, tells_sizes(pair.backward))
            return program, tells_sizes(pair.backward)

        return made

    def hint(self, text: str) -> None:
        self.events.artifact("perf_hints", lambda: text)

    # ------------------------------------------------------------ tensors that are made of others

    def apart(self) -> Compiled | None:
        """Computes what the tensors are made of; None if PyTorch is to run the graph."""
        graph, events = self.graph, self.events
        try:
            with events.stage("normalize"):
                apart = take_apart(graph, self.fakes, self.options)
            found = (self.infer_apart if isinstance(apart.program, AtenGraph) else self.train_apart)(apart)
        except (KeptWhole, NotDifferentiable, Unsupported, RuntimeError) as error:  # of PyTorch's, for its own reasons
            self.hint(f"runs operator by operator, with the tensors whole: {error}")
            return None
        aten = apart.aten
        written, parts = [k for k, _ in aten.mutated], inputs_of(apart)
        if found is None or several_in_one_place(parts, written):
            return None
        call, reach = found
        overlap = Overlap.of(written, parts, list(aten.constants.values()))
        around = replace(plain_call(graph), hooked=partly_of(reach))
        return called(around, put_together(call, graph.forward, apart, overlap), graph, events)

    def infer_apart(self, apart: Apart) -> tuple[Compiled, Sequence[int]] | None:
        aten = apart.aten
        self.events.artifact("aot_graphs", lambda: aten_text(aten))
        outputs = compile_output_builder(aten.returned, inputs_of(apart), results_of(aten))
        program = self.builder(aten, False, self.options, self.events, "")
        if program is None:
            return None
        around = replace(program_call(program, aten), no_grad=needs_autograd(self.fakes))
        call = called(around, program.load(self.events), self.graph, self.events, inputs_of(apart), aten)
        return inference_whole(call, outputs, apart), ()

    def train_apart(self, apart: Apart) -> tuple[Compiled, Sequence[int]] | None:
        """And for each input the outputs that its gradient is computed from."""
        joint, graph, events = apart.program, self.graph, self.events
        assert isinstance(joint, JointGraph)
        pair = self.pair(joint)
        outputs = compile_output_builder(joint.aten.returned, inputs_of(apart), results_of(joint.aten))
        halves = self.halves(pair)
        if halves is None:
            return None
        around = program_call(halves[0], pair.forward)
        forward = called(around, halves[0].load(events), graph, events, inputs_of(apart), pair.forward)
        backward = halves[1].load(events)
        once = "writes to its inputs" if joint.aten.mutated else unrepeatable(joint)
        if once and len(apart.tangents) > 1:
            raise KeptWhole(f"it {once}, and a backward pass from some of the results would have to run it again")
        again = load_call(CallPlan(no_torch_function=True), graph.forward, graph.forward)[0]
        replay = None if once else Again(again, joint, apart)
        compiled = CompiledPair(forward, backward, _no_partial, replay, draws(pair.forward), once)
        return differentiable_whole(pair, compiled, outputs, apart, exposed(joint, pair, apart)), depends(pair, apart)


def inputs_of(apart: Apart) -> list:
    """Fakes of what the inputs are made of."""
    places = [k for template in apart.inputs for k in parts_of(template)]
    return [n.meta["val"] for n in apart.aten.graph.nodes if n.op == "placeholder"][: len(places)]


def _no_partial(there: int) -> Any:
    raise InternalError("runtime", "part of a backward pass is not run by the compiled program here")


def partials(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Partial:
    """What makes backward programs for some of the results of a graph that was compiled for training before."""
    joint = normalize_joint(graph, fakes, options)
    assert isinstance(joint, JointGraph)
    return Stages(graph, fakes, options, events, build).partial(joint, partition(joint))


def _operators(aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str = "") -> Built | None:
    return None if in_stages(aten) is not None else Operators(interpreter(aten), consumes)


def build(
    aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str = "", own: bool = True
) -> Built | None:
    """From operators to texts; None if the graph computes where there are no kernels. `own`: are its inputs those of
    the compiled function, unless the callable takes a list?"""
    own = own and not consumes
    stages = in_stages(aten)
    if stages is None and not options.without_graphs:
        stages = in_turns(aten)
    if stages is not None:
        return _build_stages(stages, consumes, options, events, prefix, own)
    return _build(aten, consumes, options, events, prefix, own=own)


def _build_stages(
    stages: Staged, consumes: bool, options: Options, events: Events, prefix: str, own: bool
) -> Built | None:
    """What finds out sizes is called between parts that are compiled on their own."""
    parts: list[Single] = []
    for step in stages.steps:
        if isinstance(step, Part):
            moving = [k for k, v in enumerate(step.given) if isinstance(v, Ref) and v.name not in stages.inputs]
            part = _build(step.graph, False, options, events, prefix, stages.waits, moving, own)
            if part is None:
                return None
            parts.append(part)
    text = staged.generate(stages, consumes=consumes)
    events.artifact("output_code", lambda: text.text)
    return Parts(text, tuple(parts))


def _build(
    aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str, waits: str = "",
    moving: Sequence[int] = (), own: bool = False,
) -> Single | None:  # fmt: skip
    """`waits`: operators in whose results sizes are read before this program runs, and after it. `moving`: inputs that
    are made anew for each call. `own`: are the others those of the compiled function?"""
    for inner in subprograms(aten):
        inner.built = tuple(build(g, False, options, events, own=False) for g in inner.graphs)
        inner.callables = tuple(
            _callable(g, made, events) for g, made in zip(inner.graphs, inner.built, strict=True)
        )

    with events.stage(f"{prefix}lower"):
        loops = lower(aten, options)
    events.artifact("lowered", lambda: program_text(loops))
    if why := no_kernels(loops):
        events.artifact("perf_hints", lambda: f"runs uncompiled: {why}")
        return None

    with events.stage(f"{prefix}schedule"):
        scheduled = schedule(loops, options)
    events.artifact("schedule", lambda: program_text(scheduled))
    events.artifact("fusion", lambda: fusion_text(loops, scheduled))

    with events.stage(f"{prefix}codegen"):
        groups = [item for item in scheduled.items if isinstance(item, Group)]
        targets.begin((), {b.device for group in groups for b in writes(group).values()})
        kernels = targets.generate_all(groups, options)
        fused, scheduled = scheduled, reuse(gather(scheduled, kernels))
        batches = [item for item in scheduled.items if isinstance(item, Batch)]
        kernels |= {b.name: targets.generate(b.groups[0], options, many=True) for b in batches}
        targets.begin(kernels[item.name] for item in scheduled.items if isinstance(item, (Group, Batch)))
        memory = plan_memory(scheduled, HAS_OUT)
        writer = checked if options.check_kernels else host
        text = writer.generate(scheduled, kernels, memory, consumes=consumes)
    events.artifact("output_code", lambda: text.text)
    events.artifact("kernels", lambda: kernels_text(prefix, loops, fused, scheduled, kernels, memory, text))
    events.artifact("kernel_code", lambda: "\n".join(kernel.text for kernel in text.kernels))

    if not any(traits(d).records for d in devices(scheduled)):
        return Single(text, prefix, consumes)
    facts = replace(graph_facts(scheduled, aten.saved), moving=frozenset(moving), own=own)
    return Single(text, prefix, consumes, OnGpu(facts, unrecorded(scheduled, options, waits), scheduled))


def _callable(graph: AtenGraph, built: Built | None, events: Events) -> Compiled:
    """A graph that an operator runs, and what it has become."""
    plain = interpreter(graph)
    return plain if built is None else load_call(CallPlan(checks=built.checks), built.load(events), plain)[0]


def unrecorded(program: Program, options: Options, waits: str) -> str:
    """Why a GPU's program will have no CUDA graph; empty if it will."""
    why = options.without_graphs or ("kernels are checked" if options.check_kernels else "")
    why = why or (f"{waits} finds out a size, and the program waits for the device to tell it" if waits else "")
    return why or ("several devices take part" if len(devices(program)) > 1 else unrecordable(program))


def devices(program: Program) -> set[torch.device]:
    """Where it reads and writes."""
    return {b.device for b in program.inputs} | {b.device for i in program.items for b in writes(i).values()}


def no_kernels(program: Program) -> str:
    """Why a device that the program computes on has no kernels; empty if all have."""
    reasons = (targets.unavailable(d) for d in sorted(devices(program), key=str))
    return next((why for why in reasons if why), "")
