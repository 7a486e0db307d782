"""The stages of one compilation, in order. No other file names them all.

    capture    run the bytecode symbolically: a torch-level graph, guards, residual code
    repeats    of many equal layers a few, which go on in the place of all
    normalize  the graph on fake tensors: functional ATen operators
    autograd   which half computes what, where gradients are wanted
    lower      each operator as loops over symbolic indices
    schedule   which loops share a kernel, and where temporaries live; then all layers come back
    codegen    kernels as LLVM IR, the host program as Python
    runtime    machine code, what a call needs around it, and a callable
    guards     the residual code around the callable, behind what it relies on: an entry

`events` times, logs and dumps each stage's output; the stages know nothing of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dovetail import attention, guards, repeats
from dovetail.assembly import (
    AsCaptured,
    Built,
    Compiled,
    CutGraph,
    CutPiece,
    InferenceApart,
    Operators,
    Partial,
    Partials,
    Plan,
    TrainingApart,
    assemble,
    called,
    inference,
    left_to_pytorch,
    parts_given,
    plain_call,
    program_call,
    telling,
    training,
    written_by,
)
from dovetail.autograd import draws, partition, unrepeatable
from dovetail.autograd.partial_backward import tells_sizes, without
from dovetail.autograd.partition import exposed
from dovetail.building import Change, Divide, build, dividing, scheduled_loops
from dovetail.callees import HOOKS
from dovetail.capture.driver import capture_whole, capture_with_breaks
from dovetail.capture.interpreter.tracing_log import Watch
from dovetail.capture.numbers.number_cuts import Piece, cut, takes_numbers_out
from dovetail.capture.tensors.repeatable import makers_of, shows
from dovetail.compilation import ONCE, tell_captured
from dovetail.config import config
from dovetail.diagnostics.events import Events
from dovetail.diagnostics.values import compared
from dovetail.errors import InternalError, Unsupported
from dovetail.interop.backends import BUILT_IN, call_backend
from dovetail.ir.aten import (
    Apart,
    AtenGraph,
    JointGraph,
    KeptWhole,
    NoPartial,
    Pair,
    Uncompiled,
)
from dovetail.ir.captured import ALONE, FAILED, NO_OVERRIDES, REPEATED, Captured, MadeForOneCall
from dovetail.ir.checks import assumed
from dovetail.ir.graphtext import graph_text
from dovetail.ir.kernel import Buckets
from dovetail.ir.loops import Program
from dovetail.ir.nodes import tosses
from dovetail.ir.records import dataclass
from dovetail.ir.settings import turns_settings
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.lower import in_stages
from dovetail.normalize import normalize, normalize_joint
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.recording.templates import TEMPLATES
from dovetail.normalize.text import aten_text
from dovetail.normalize.wrapper_tensors import take_apart
from dovetail.ops.calls.autograd_calls import begins_to_record, makes_leaves, needs_autograd, steered, without_gradients
from dovetail.ops.fake.masks import masks_given_back
from dovetail.ops.fake.symbolic.number import NumberNeeded
from dovetail.ops.fake.symbolic.unbacked import discovering
from dovetail.ops.fake.wrapped import is_wrapper
from dovetail.options import Options
from dovetail.repeats import Irregular, Row, Unfolding
from dovetail.repeats.graphs import given_backward, whole_aten, whole_joint, whole_pair
from dovetail.runtime.call.autograd import partly_of
from dovetail.runtime.call.overlap import several_in_one_place
from dovetail.runtime.call.pieces import print_pieces
from dovetail.runtime.call.wrapped import depends
from dovetail.runtime.dispatch.reentrancy import allowed
from dovetail.schedule import divided

if TYPE_CHECKING:
    from dovetail.compilation import Compilation

TEMPLATES.update(attention.TEMPLATES)


def compile_entry(wanted: Compilation) -> guards.Entry:
    """An entry for one call, phase by phase."""
    with masks_given_back():
        return _phases(wanted)


def _phases(wanted: Compilation) -> guards.Entry:
    options, events = wanted.options, wanted.events
    try:
        captured = trace(wanted.fn, wanted.args, wanted.kwargs, options, events, wanted.varying, wanted.lasts, True)
    except MadeForOneCall:
        events.open.clear()
        return wanted.as_it_is()
    events.captured, events.plan = captured, None
    captured = wanted.linked(captured)
    once = captured.one_shot and not wanted.recurs and options.backend == "dovetail"
    plain = once or bool(captured.breaks) and tosses(captured.graph.graph)
    events.on_plan = None if once else wanted.packing(captured)
    try:
        graph = _backend(wanted, captured, "eager" if plain else options.backend)
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
    del graph.meta[FAILED], graph.meta[ALONE]
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
    varying: Varying = CONSTANT, lasting: bool = False, prepares: bool = False,
) -> Captured:  # fmt: skip
    """Capture one call of `fn`, up to the first graph break if it may have any.

    `varying` says which numbers and sizes were seen to change: they become inputs of the graph. `prepares`: an
    optimizer may be given the state of its first step.

    Raises Unsupported, with the user's line, where capture can neither go on nor break; `lasting`: and MadeForOneCall.
    """
    source, bytecode = events.stream("trace_source"), events.stream("trace_bytecode")
    watch = Watch(source, bytecode) if source or bytecode else None
    with events.stage("capture"):
        if options.fullgraph:
            captured = capture_whole(fn, args, kwargs, options, varying, watch, prepares)
        else:
            captured = capture_with_breaks(fn, args, kwargs, options, varying, watch, lasting, prepares)
    events.artifact("graph_code", lambda: graph_text(captured.graph.graph))
    return captured


def as_captured(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The `eager` backend: PyTorch runs the graph."""
    events.planned(AsCaptured(plain_call(graph)))
    return assemble(events.plan, graph, fakes, events)


def compile_graph(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The default backend: a callable of the graph's inputs that returns its outputs."""
    return Stages(graph, fakes, options, events, build, not events.watched).compiled()


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
FURTHER = "it is from some of the results, and a program for these would be one too many"

#: Compiles one functional graph, `(graph, consumes, options, events, prefix of stages)`; raises Uncompiled.
#: `consumes`: its callable takes a list of the inputs, which it empties.
#: The last argument changes the scheduled program.
Builder = Callable[..., Built]


@dataclass(frozen=True)
class Stages:
    """What becomes of a captured graph, whose inputs look like `fakes`."""

    graph: torch.fx.GraphModule
    fakes: Sequence[Any]
    options: Options
    events: Events
    builder: Builder
    shortens: bool = False  # are equal turns of the graph compiled a few times, rather than each?
    piece: int = 0  # of which the graph is, if it is part of another

    def compiled(self) -> Compiled:
        plan, partials = self.planned()
        self.events.planned(plan)
        return assemble(plan, self.graph, self.fakes, self.events, partials)

    def planned(self) -> tuple[Plan, Partials]:
        """What the graph becomes: PyTorch runs it where there is nothing else."""
        try:
            return self.made()
        except Uncompiled as error:
            return AsCaptured(plain_call(self.graph), left_to_pytorch(self.graph.graph, error)), (None,)

    def made(self) -> tuple[Plan, Partials]:
        """Raises Uncompiled."""
        graph, fakes = self.graph, self.fakes
        why = turns_settings(graph.graph) or steered(graph.graph)
        if why is None and (takes_numbers_out(graph.graph) or begins_to_record(graph.graph, fakes)):
            return self.in_pieces(cut(graph))
        why = why or makes_leaves(graph.graph, fakes)
        used = None if why is not None else without_gradients(graph.graph)
        if used is None:
            raise why or Uncompiled("it computes gradients, after which only some of its results can be differentiated")
        if any(is_wrapper(n.meta.get("fake")) for n in graph.graph.nodes):
            return self.apart(used), (None,)
        plan, partial = self.shortened(used) or self.plan(used)
        return plan, (partial,)

    def in_pieces(self, pieces: Sequence[Piece]) -> tuple[Plan, Partials]:
        """Each piece as a graph of its own."""
        graph, made, partials = self.graph, list[CutPiece](), list[Partial | None]()
        numbers = {node: k for k, node in enumerate(graph.graph.nodes)}
        for k, piece in enumerate(pieces):
            part, fakes, plan, partial = piece.graph(graph), piece.fakes(), None, None
            part.meta |= {**graph.meta, REPEATED: False}
            if not piece.alone:
                with torch.set_grad_enabled(piece.grad):
                    plan, (partial,) = replace(self, graph=part, fakes=fakes, piece=k).planned()
            places = (tuple(map(numbers.__getitem__, nodes)) for nodes in (piece.inputs, piece.nodes, piece.outputs))
            made.append(CutPiece(tuple(places), tuple(fakes), piece.grad, plan))  # type: ignore[arg-type]
            partials.append(partial)
        makers = makers_of(graph.graph.nodes)
        shown = next((k for k, piece in enumerate(pieces) if shows(piece.nodes, makers)), None)
        whole = shown is not None and (made[shown].plan is None or isinstance(made[shown].plan, AsCaptured))
        return CutGraph(tuple(made), print_pieces(graph.graph, pieces, shown, whole), plain_call(graph)), partials

    def plan(self, used: Sequence[int]) -> tuple[Plan, Partial | None]:
        """What the graph becomes, and what makes backward programs for some of its results. `used`: see
        `without_gradients`. Raises Uncompiled."""
        graph, fakes, events = self.graph, self.fakes, self.events
        try:
            found = self.normalized(needs_autograd(fakes) and not used)
            if isinstance(found, JointGraph):
                return self.train(found)
        except NumberNeeded as error:
            raise Uncompiled(f"{error.reason}, which only PyTorch's operators take when they run") from error
        events.artifact("aot_graphs", lambda: aten_text(found))
        writable(fakes, [k for k, _ in found.mutated])
        program = self.builder(found, False, self.options, events)
        return inference(program, found, graph, needs_autograd(fakes), used, self.late), None

    @property
    def late(self) -> bool:
        """May the graph find out too late that sizes are not what it was made for?"""
        return any(n.target is assumed and not n.args[1] for n in self.graph.graph.nodes)

    def normalized(self, trains: bool) -> AtenGraph | JointGraph:
        with self.events.stage("normalize"):
            return (normalize_joint if trains else normalize)(self.graph, self.fakes, self.options)

    def train(self, joint: JointGraph) -> tuple[Plan, Partial | None]:
        pair = self.pair(joint)
        writable(self.fakes, written_by(joint))
        halves = self.halves(pair, None if pair.backward.mutated else dividing(self.options, pair.kept))
        plan = training(halves, joint, pair, self.graph, draws(pair.forward), unrepeatable(joint), self.late)
        return plan, self.partial(joint, pair, halves[1].buckets, pair.kept)

    def pair(self, joint: JointGraph) -> Pair:
        self.events.artifact("aot_joint_graphs", lambda: aten_text(joint.aten))
        with self.events.stage("autograd"):
            pair = partition(joint)
        text = lambda: f"forward\n{aten_text(pair.forward)}\nbackward\n{aten_text(pair.backward)}"
        self.events.artifact("aot_graphs", text)
        return pair

    def halves(self, pair: Pair, divide: Divide | None = None) -> tuple[Built, Built]:
        forward = self.builder(pair.forward, False, self.options, self.events, "forward ")
        backward = self.builder(pair.backward, True, self.options, self.events, "backward ", divide=divide)
        return forward, backward

    def partial(
        self, joint: JointGraph, pair: Pair, buckets: Buckets, kept: Sequence[int],
        unfolding: Callable[[Set[str]], Change] | None = None,
    ) -> Partial:  # fmt: skip
        """Makes the backward program for some of the tangents, when a call first needs it. `buckets` and `kept` are of
        the whole. `unfolding` gives that of few turns all of them; it is told which tangents are absent."""
        tangents, events = [name for name, _ in joint.tangents], self.events
        left, irregular = MOST_PARTIAL, dict[int, str]()
        divide = functools.partial(divided, buckets=buckets, kept=kept) if buckets else None

        def made(there: int) -> tuple[Built, bool]:
            nonlocal left
            absent = {name for k, name in enumerate(tangents) if not there >> k & 1}
            graph = without_tangents(joint, pair, absent)
            events.artifact("aot_graphs", lambda: f"backward, without {', '.join(sorted(absent))}\n{aten_text(graph)}")
            left -= 1
            few = left >= 0 or in_stages(graph) is not None or unfolding is not None
            builder = self.builder if few else _operators
            if there in irregular:
                raise NoPartial(irregular[there])
            if not few:
                telling(events)("a backward pass", FURTHER)
            try:
                unfold = None if unfolding is None else unfolding(absent)
                program = builder(graph, True, self.options, events, "backward ", unfold=unfold, divide=divide)
            except Irregular as error:
                irregular[there] = f"its turns are not equal: {error}"
                raise NoPartial(irregular[there]) from error
            if events.on_partial is not None:
                events.on_partial(self.piece, there, program, tells_sizes(pair.backward))
            return program, tells_sizes(pair.backward)

        return made

    def hint(self, text: str) -> None:
        self.events.artifact("perf_hints", lambda: text)

    # ------------------------------------------------------------ graphs of equal turns

    def shortened(self, used: Sequence[int]) -> tuple[Plan, Partial | None] | None:
        """The plan, where the graph is made of equal turns, of which a few are compiled; None where it is not."""
        if used or not self.shortens:
            return None
        with self.events.stage("repeats"):
            found = repeats.find(self.graph, self.fakes)
        if found is None:
            return None
        few, fewer = (replace(self, graph=each.graph, fakes=each.fakes) for each in found)
        trains, inputs = needs_autograd(self.fakes), found[0].inputs
        try:
            graphs = few.normalized(trains), fewer.normalized(trains)
            return (self.train_turns if isinstance(graphs[0], JointGraph) else self.infer_turns)(*graphs, inputs)
        except (Irregular, NumberNeeded, Uncompiled) as error:
            self.hint(f"all turns of a loop are compiled: {error}")
            return None

    def infer_turns(self, few: Any, fewer: Any, inputs: Row) -> tuple[Plan, None]:
        whole, less = whole_aten(few, inputs), self.loops(fewer, "")
        program = self.builder(few, False, self.options, self.events, "", Unfolding(inputs, less))
        return inference(program, whole, self.graph, needs_autograd(self.fakes), (), self.late), None

    def train_turns(self, few: Any, fewer: Any, inputs: Row) -> tuple[Plan, Partial] | None:
        options, events = self.options, self.events
        if unrepeatable(few) and len(few.tangents) > 1:
            raise Irregular("eager could not make a backward pass from some results")
        whole, pair, less = whole_joint(few, inputs), self.pair(few), self.pair(fewer)
        if pair.backward.mutated:
            raise Irregular("checkpointed functions write in the backward pass, too")
        unfold = Unfolding(inputs, self.loops(less.forward, "forward "), saved=pair.forward.saved)
        forward = self.builder(pair.forward, False, options, events, "forward ", unfold)
        assert unfold.outputs is not None
        given = given_backward(pair, inputs, unfold.outputs)

        def unfolding(absent: Set[str]) -> Unfolding:
            """Of the backward program without some tangents."""
            names = [n.name for n in pair.backward.graph.nodes if n.op == "placeholder"]
            gone = [] if tells_sizes(pair.backward) else [k for k, name in enumerate(names) if name in absent]
            others = self.loops(without_tangents(fewer, less, absent), "backward ")
            return Unfolding(given.without(gone), others, inputs)

        both, change = whole_pair(pair, inputs, unfold.outputs, given), unfolding(frozenset())
        backward = self.builder(pair.backward, True, options, events, "backward ", change, dividing(options, both.kept))
        draw = draws(pair.forward), unrepeatable(few)
        plan = training((forward, backward), whole, both, self.graph, *draw, self.late, turns=True)
        return plan, self.partial(few, pair, backward.buckets, both.kept, unfolding)

    def loops(self, aten: AtenGraph, prefix: str) -> tuple[Program, Program]:
        """The program of a graph that is not to run, as lowered and scheduled."""
        return scheduled_loops(aten, self.options, self.events, prefix)

    # ------------------------------------------------------------ tensors that are made of others

    def apart(self, used: Sequence[int]) -> Plan:
        """Computes what the tensors are made of. `used`: see `without_gradients`. Raises Uncompiled."""
        if used:
            raise KeptWhole("it computes gradients of tensors that are made of others")
        try:
            with self.events.stage("normalize"):
                apart = take_apart(self.graph, self.fakes, self.options)
            plan = (self.infer_apart if isinstance(apart.program, AtenGraph) else self.train_apart)(apart)
        except (Unsupported, RuntimeError) as error:  # of PyTorch's, for its own reasons
            raise KeptWhole(f"it computes with tensors that are made of others: {error}") from error
        writable(parts_given(apart), [k for k, _ in apart.aten.mutated])
        return plan

    def infer_apart(self, apart: Apart) -> Plan:
        aten = apart.aten
        self.events.artifact("aot_graphs", lambda: aten_text(aten))
        program = self.builder(aten, False, self.options, self.events)
        inner = replace(program_call(program, aten), no_grad=needs_autograd(self.fakes))
        return InferenceApart(program, apart, inner, plain_call(self.graph))

    def train_apart(self, apart: Apart) -> Plan:
        joint = apart.program
        assert isinstance(joint, JointGraph)
        pair = self.pair(joint)
        if pair.backward.mutated:
            raise KeptWhole("checkpointed functions write to what they are given")
        halves = self.halves(pair)
        once = "writes to its inputs" if joint.aten.mutated else unrepeatable(joint)
        if once and len(apart.tangents) > 1:
            raise KeptWhole(f"it {once}, and a backward pass from some of the results would have to run it again")
        call = replace(plain_call(self.graph), hooked=partly_of(depends(pair, apart)))
        inner, random = program_call(halves[0], pair.forward), draws(pair.forward)
        return TrainingApart(*halves, pair, apart, random, once, tuple(exposed(joint, pair, apart)), inner, call)


def writable(fakes: Sequence[Any], written: Sequence[int]) -> None:
    """Raises Uncompiled where no kernel can write to inputs."""
    if several_in_one_place(fakes, written):
        raise Uncompiled("it writes to a tensor of which several elements share a place in memory")


def without_tangents(joint: JointGraph, pair: Pair, absent: Set[str]) -> AtenGraph:
    """The backward graph without some tangents."""
    graph = without(pair.backward, {name for name, _ in joint.tangents}, absent)
    remove_dead(graph)
    return graph


def partials(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events, turns: bool,
    buckets: Buckets, piece: int,
) -> Partial:  # fmt: skip
    """What makes backward programs for some of the results of a graph that was compiled for training before. `turns`:
    was it as one of equal turns? (`Training.turns`) `buckets`: those of the backward program."""
    stages = Stages(graph, fakes, options, events, build, turns, piece)
    if turns:
        found = stages.shortened(())
        if found is None or found[1] is None:
            raise InternalError("repeats", "the turns of a graph were equal, and are not now")
        return found[1]
    joint = normalize_joint(graph, fakes, options)
    assert isinstance(joint, JointGraph)
    pair = partition(joint)
    return stages.partial(joint, pair, buckets, pair.kept)


def _operators(
    aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str = "", **changes: Any
) -> Built:
    if in_stages(aten) is not None:
        raise Uncompiled("it finds out sizes")
    return Operators(interpreter(aten), consumes)
