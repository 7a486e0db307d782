"""From what the stages made to a callable: texts are loaded, and what callers get is put around them.

    Single | Parts | Operators       what one functional graph has become; `load` makes a callable of it
    Inference | Training | ...       what a captured graph has become; `assemble` makes the callable that an entry calls

All of these are data, so that a compilation can be kept and assembled again in another process (`kept/`). Nothing here
needs a stage.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from dovetail import targets
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.events import Events
from dovetail.errors.codes import CODES
from dovetail.ir.aten import Apart, AtenGraph, JointGraph, Pair, Uncompiled, parts_of, results_of
from dovetail.ir.callers import users_place
from dovetail.ir.captured import ALONE, FAILED, NO_OVERRIDES, REPEATED, Break
from dovetail.ir.checks import CHECKING
from dovetail.ir.kernel import Buckets, HostProgram, Kernel
from dovetail.ir.launch import GraphFacts
from dovetail.ir.piece_graph import PieceGraph
from dovetail.ir.records import dataclass
from dovetail.ir.settings import AUTOCAST_DEVICES
from dovetail.ops.calls.autograd_calls import steers
from dovetail.runtime.call import autograd, wrapped
from dovetail.runtime.call import buckets as in_nodes
from dovetail.runtime.call.autograd import CompiledPair, partly_of, unheard, without_gradient
from dovetail.runtime.call.double_backward import Replay
from dovetail.runtime.call.further_gradients import FurtherGradients
from dovetail.runtime.call.overlap import Overlap
from dovetail.runtime.call.pieces import PiecesText, load_pieces
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call
from dovetail.runtime.call.program import load as load_program
from dovetail.runtime.call.program import load_stages
from dovetail.runtime.call.view_replay import compile_output_builder, recounting
from dovetail.runtime.dispatch.failure_policy import warn_user
from dovetail.runtime.dispatch.restore_modes import mode_changes
from dovetail.runtime.gpu.bucket_graphs import BucketRecorder
from dovetail.runtime.gpu.graphs import Recorder, aside
from dovetail.runtime.gpu.warm_up import warm_up

Compiled = Callable[..., Sequence[Any]]

# ---------------------------------------------------------------- what is not compiled


def telling(events: Events) -> Callable[[str, str], None]:
    """Tells what PyTorch does instead of compiled code, and why. Who has asked for operators is not told."""
    compiles, where = events.compiles, events.record.where  # programs live longer than what `events` has of the call
    return lambda what, reason: tell_uncompiled(where, what, _reason(Uncompiled(reason))) if compiles else None


def left_to_pytorch(graph: torch.fx.Graph, error: Uncompiled) -> Break | None:
    """Why PyTorch runs a graph; None where it is as fast with it as compiled code is: there is one operator."""
    calls = (n for n in graph.nodes if n.op in ("call_function", "call_method"))
    several = sum(n.target is not operator.getitem and not steers(n) for n in calls) > 1
    return _reason(error) if several or any(n.op == "get_attr" for n in graph.nodes) else None


def _reason(error: Uncompiled) -> Break:
    code, place = "uncompiled-graph", users_place(error.stack)
    return Break(code, str(error), CODES[code].remedy, () if place is None else (place,))


def tell_uncompiled(where: str, what: str, why: Break) -> None:
    """A warning, once for each place: what looks compiled is as slow as eager mode. `what`: a graph, a call."""
    told = replace(why, reason=f"PyTorch runs {what} of {where} operator by operator, since {why.reason}")
    message = f"dovetail: {told.text()}"
    if BREAKS.meet(told.code, told.reason, told.stack, message):
        warn_user(message)


# ---------------------------------------------------------------- one functional graph


@dataclass(frozen=True)
class OnGpu:
    """What only a GPU's program needs. `why` it has no CUDA graph, if it has none; `loops`: what is rehearsed."""

    facts: GraphFacts
    why: str
    loops: Any = None


@dataclass(frozen=True)
class Single:
    """One host program with its kernels. `consumes`: it takes a list of its inputs, which it empties."""

    host: HostProgram
    prefix: str
    consumes: bool
    gpu: OnGpu | None = None

    known = True  # are the version counters of its results 0?

    @property
    def checks(self) -> bool:
        """May it find out that an index is out of bounds, or that a size is another one? Then it raises CheckFailed."""
        return any(kernel.messages for kernel in self.host.kernels) or f"dovetail_{CHECKING}" in self.host.names

    @property
    def buckets(self) -> Buckets:
        """The places of the results that it gives together, if it does not give all of them at the end."""
        return self.host.buckets

    @property
    def recorded(self) -> bool:
        """Does it become CUDA graphs?"""
        return self.gpu is not None and not self.gpu.why

    def load(self, events: Events) -> Compiled:
        title, host = events.title(self.prefix), self.host
        with events.stage(f"{self.prefix}load"):
            if self.gpu is None:
                return load_program(host, load_kernels(host.kernels), title)
            facts, why = self.gpu.facts, self.gpu.why
            place = functools.partial(aside, facts.device, facts.products) if not why else nullcontext
            call = load_program(host, load_kernels(host.kernels, self.gpu.loops, place), title)
        return through_graphs(call, facts, why, events, self.consumes, self.prefix, self.buckets)


@dataclass(frozen=True)
class Parts:
    """Programs between which sizes are found out."""

    host: HostProgram
    parts: tuple[Single, ...]

    known = checks = True
    buckets = ()

    @property
    def recorded(self) -> bool:
        return any(part.recorded for part in self.parts)

    def load(self, events: Events) -> Compiled:
        return load_stages(self.host, [part.load(events) for part in self.parts])


@dataclass(frozen=True)
class Operators:
    """Operators that are called one by one."""

    call: Compiled
    consumes: bool

    known = checks = recorded = False
    buckets = ()

    def load(self, events: Events) -> Compiled:
        return (lambda box: self.call(*box)) if self.consumes else self.call


Built = Single | Parts | Operators


def load_kernels(
    kernels: Sequence[Kernel], loops: Any = None, place: Callable[[], AbstractContextManager[None]] = nullcontext
) -> dict[str, Callable[..., Any]]:
    """Machine code for each kernel of the program, on its device; it will run in `place`. `loops`: the program, to be
    rehearsed; one that has been rehearsed before is not rehearsed again."""
    return targets.load(kernels, lambda device: None if loops is None else warm_up(loops, device, place))


def through_graphs(
    call: Compiled, facts: GraphFacts, why: str, events: Events, consumes: bool, prefix: str = "",
    buckets: Buckets = (),
) -> Compiled:  # fmt: skip
    """`call` through CUDA graphs, unless there is a reason `why` not."""

    def report(why: str) -> None:
        events.artifact("perf_hints", lambda: why)

    if why:
        report(f"no CUDA graph: {why}")
        return call
    plain = call if not consumes else lambda *inputs: call(list(inputs))
    told = plain, facts, report, events.title(prefix)
    if buckets:
        in_buckets: Any = BucketRecorder(*told, buckets)
        return in_buckets if not consumes else lambda box: in_buckets(*box)
    return Recorder(*told, emptying=call).of_list if consumes else Recorder(*told)


# ---------------------------------------------------------------- a captured graph


@dataclass(frozen=True)
class Inference:
    """Of `aten`, placeholders and results are needed."""

    program: Built
    aten: AtenGraph
    call: CallPlan


@dataclass(frozen=True)
class Training:
    """Of the graphs, placeholders and results are needed. `random`, `once`: see `CompiledPair`. `inner` is the call of
    the forward program, `call` that of both as one node of PyTorch's graph. `turns`: is it put together of a few of the
    graph's equal turns?"""

    forward: Built
    backward: Built
    joint: JointGraph
    pair: Pair
    random: frozenset[torch.device]
    once: str
    inner: CallPlan
    call: CallPlan
    turns: bool = False


@dataclass(frozen=True)
class InferenceApart:
    """The program computes what tensors are made of. `inner` is its call, `call` that with the tensors themselves."""

    program: Built
    apart: Apart
    inner: CallPlan
    call: CallPlan


@dataclass(frozen=True)
class TrainingApart:
    """The same for `Training`. `exposed`: see `wrapped.differentiable`."""

    forward: Built
    backward: Built
    pair: Pair
    apart: Apart
    random: frozenset[torch.device]
    once: str
    exposed: tuple[int, ...]
    inner: CallPlan
    call: CallPlan


@dataclass(frozen=True)
class AsCaptured:
    """PyTorch runs the graph, and `why`, unless it was asked to."""

    call: CallPlan
    why: Break | None = None


@dataclass(frozen=True)
class CutPiece:
    """A part of the graph, whose inputs look like `fakes`. `places`: the numbers of its inputs, nodes and outputs in
    the graph. Without a plan it is one node, which PyTorch runs. `grad`: the mode in which it begins."""

    places: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    fakes: tuple
    grad: bool
    plan: Plan | None

    def graph(self, whole: Any) -> PieceGraph:
        return PieceGraph(whole, self.places, {**whole.meta, REPEATED: False})


@dataclass(frozen=True)
class CutGraph:
    """Parts of the graph, between which numbers are taken out of tensors and computed with."""

    pieces: tuple[CutPiece, ...]
    printed: PiecesText
    call: CallPlan


Plan = Inference | Training | InferenceApart | TrainingApart | AsCaptured | CutGraph
Partial = Callable[[int], tuple[Built, bool]]
#: For each piece what makes backward programs for some of its results, if it has any; a graph that is whole is one.
Partials = Sequence[Partial | None]


def plans_of(plan: Plan) -> Sequence[Plan | None]:
    """One for each piece."""
    return [piece.plan for piece in plan.pieces] if isinstance(plan, CutGraph) else [plan]


def trains(plan: Plan) -> bool:
    return any(isinstance(each, Training) for each in plans_of(plan))


# ---------------------------------------------------------------- what calls need


def plain_call(graph: torch.fx.GraphModule) -> CallPlan:
    """Whatever runs the captured graph."""
    return CallPlan(restores=mode_changes(graph.graph), no_torch_function=graph.meta.get(NO_OVERRIDES, False))


def program_call(program: Built, aten: AtenGraph) -> CallPlan:
    """What computes the functional graph. Its casts are its own: what PyTorch would cast now, the captured graph may
    have computed in a block without autocast."""
    on = any(torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES)
    counted = tuple(c for c in aten.counted if c[1] or not program.known)
    return CallPlan(no_autocast=on, counted=counted, recounted=aten.recounted)


def graph_call(
    graph: torch.fx.GraphModule, program: Built, aten: AtenGraph, written: Sequence[int], late: bool
) -> CallPlan:
    """What takes the captured graph's inputs and gives its outputs. `late`: may the graph find out too late that sizes
    are not what it was made for?"""
    repeated = graph.meta.get(REPEATED, False)
    return replace(
        plain_call(graph), written=tuple(written), elsewhere=late and repeated, checks=program.checks and not repeated,
        recorded=program.recorded, returned=aten.returned, grad=torch.is_grad_enabled(),
    )  # fmt: skip


def inference(
    program: Built, aten: AtenGraph, graph: torch.fx.GraphModule, grads: bool, used: Sequence[int], late: bool
) -> Inference:
    """`grads`: do inputs require gradients? `used`: see `ops.engine.without_gradients`."""
    inner = program_call(program, aten)
    call = replace(
        graph_call(graph, program, aten, [k for k, _ in aten.mutated], late), no_grad=grads,
        no_autocast=inner.no_autocast, counted=inner.counted, recounted=inner.recounted,
        results=len(results_of(aten)), freed=tuple(used),
    )  # fmt: skip
    return Inference(program, aten, call)


def training(
    halves: tuple[Built, Built], joint: JointGraph, pair: Pair, graph: torch.fx.GraphModule,
    random: frozenset[torch.device], once: str, late: bool, turns: bool = False,
) -> Training:  # fmt: skip
    forward = halves[0]
    call = replace(
        graph_call(graph, forward, joint.aten, written_by(joint), late), hooked=partly_of(pair.depends),
        becoming=tuple(each.position for each in joint.passed if each.kind == "input"),
        detached=without_gradient(joint, pair), rewritten=joint.rewritten, results=joint.results,
        passed=joint.passed, watched=joint.tangents[0][1],
    )  # fmt: skip
    return Training(*halves, joint, pair, random, once, program_call(forward, pair.forward), call, turns)


def written_by(joint: JointGraph) -> list[int]:
    """The inputs that it writes to."""
    return [k for k, _ in (*joint.aten.mutated, *joint.rewritten)]


# ---------------------------------------------------------------- callables


def assemble(
    plan: Plan, graph: Any, fakes: Sequence[Any], events: Events, partials: Partials = (None,)
) -> Compiled:
    """The callable of the captured graph's inputs, which look like `fakes`.

    `graph` has `forward`, which computes the same, and `meta`.
    """
    if isinstance(plan, CutGraph):
        return _in_pieces(plan, graph, events, partials)
    if isinstance(plan, InferenceApart | TrainingApart):
        return _apart(plan, graph, events)
    if isinstance(plan, AsCaptured):
        if plan.why is not None:
            events.record.uncompiled.append(plan.why)
        return called(plan.call, graph.forward, graph, events)
    if isinstance(plan, Inference):
        return called(plan.call, plan.program.load(events), graph, events, fakes, plan.aten)
    joint, pair, (partial,) = plan.joint, plan.pair, partials
    forward = called(plan.inner, plan.forward.load(events), graph, events, fakes, pair.forward)
    backward, buckets = plan.backward.load(events), plan.backward.buckets
    further = FurtherGradients(graph, graph.meta[ALONE]) if ALONE in graph.meta else None
    replay = None if plan.once else Replay(graph.forward, joint, telling(events), pair.numbers, further)
    backward = recounting(backward, pair.backward.recounted)

    def some(there: int) -> tuple[Compiled, bool]:
        assert partial is not None
        program, takes_all = partial(there)
        call: Any = program.load(events)
        if buckets and not program.buckets:
            call = in_nodes.in_steps(call, buckets)
        return recounting(call, pair.backward.recounted), takes_all

    compiled = CompiledPair(forward, backward, some, replay, plan.random, plan.once, graph.meta.get(FAILED, unheard))
    if buckets:
        run = in_nodes.differentiable(joint, pair, compiled, buckets)
    else:
        run = autograd.differentiable(joint, pair, compiled)
    return called(plan.call, run, graph, events, fakes, joint.aten)


def _apart(plan: InferenceApart | TrainingApart, graph: Any, events: Events) -> Compiled:
    apart, aten, given = plan.apart, plan.apart.aten, parts_given(plan.apart)
    outputs = compile_output_builder(aten.returned, given, results_of(aten))
    if isinstance(plan, InferenceApart):
        call = called(plan.inner, plan.program.load(events), graph, events, given, aten)
        run = wrapped.inference(call, outputs, apart)
    else:
        forward = called(plan.inner, plan.forward.load(events), graph, events, given, plan.pair.forward)
        again, _ = load_call(CallPlan(no_torch_function=True), graph.forward, graph.forward)
        replay = None if plan.once else wrapped.Again(again, apart, telling(events))
        backward = plan.backward.load(events)
        compiled = CompiledPair(forward, backward, wrapped.no_partial, replay, plan.random, plan.once)
        run = wrapped.differentiable(plan.pair, compiled, outputs, apart, plan.exposed)
    overlap = Overlap.of([k for k, _ in aten.mutated], given, list(aten.constants.values()))
    return called(plan.call, wrapped.put_together(run, graph.forward, apart, overlap, telling(events)), graph, events)


def parts_given(apart: Apart) -> list:
    """Fakes of what the inputs are made of."""
    places = [k for template in apart.inputs for k in parts_of(template)]
    return [n.meta["val"] for n in apart.aten.graph.nodes if n.op == "placeholder"][: len(places)]


def _in_pieces(plan: CutGraph, graph: Any, events: Events, partials: Partials) -> Compiled:
    made: list[Compiled] = []
    for piece, partial in zip(plan.pieces, partials, strict=True):
        part = piece.graph(graph)
        with torch.set_grad_enabled(piece.grad):
            inside = piece.plan
            run = part.forward if inside is None else assemble(inside, part, piece.fakes, events, (partial,))
            made.append(run)
    events.artifact("call_code", lambda: plan.printed.text)
    return called(plan.call, load_pieces(plan.printed, made), graph, events)


def called(
    plan: CallPlan, run: Compiled, graph: Any, events: Events, fakes: Sequence[Any] = (), aten: AtenGraph | None = None
) -> Compiled:
    """`run`, which computes `aten`, with what its calls need around it."""
    like, constants = ((), ()) if aten is None else (results_of(aten), tuple(aten.constants.values()))
    call, text = load_call(plan, run, graph.forward, fakes, like, constants, telling(events))
    if text:
        events.artifact("call_code", lambda: text)
    return call
