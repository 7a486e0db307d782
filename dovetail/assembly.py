"""From what the stages made to a callable: texts are loaded, and what callers get is put around them.

    Single | Parts | Operators       what one functional graph has become; `load` makes a callable of it
    Inference | Training             what a captured graph has become; `assemble` makes the callable that an entry calls

All of these are data, so that a compilation can be kept and assembled again in another process (`kept/`). Nothing here
needs a stage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dovetail import targets
from dovetail.diagnostics.events import Events
from dovetail.ir.aten import AtenGraph, results_of
from dovetail.ir.captured import FAILED, REPEATED
from dovetail.ir.checks import OtherSizes
from dovetail.ir.host import HostProgram
from dovetail.ir.joint import JointGraph, Pair
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import GraphFacts
from dovetail.ir.records import dataclass
from dovetail.ir.settings import AUTOCAST_DEVICES
from dovetail.runtime.call import program as program_runtime
from dovetail.runtime.call import staged as staged_runtime
from dovetail.runtime.call.autograd import CompiledPair, differentiable, unheard, unless_hooked
from dovetail.runtime.call.double_backward import Replay
from dovetail.runtime.call.freed_history import freed_history
from dovetail.runtime.call.hook_watch import watcher
from dovetail.runtime.call.outputs import as_they_are, build_outputs, sync_version_counters
from dovetail.runtime.call.overlap import fallback_on_overlap
from dovetail.runtime.gpu.graphs import Recorder, aside
from dovetail.runtime.gpu.warm_up import warm_up

Compiled = Callable[..., Sequence[Any]]


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

    def load(self, eager: Compiled | None, events: Events) -> Compiled:
        """`eager` does the same."""
        title, host = events.title(self.prefix), self.host
        with events.stage(f"{self.prefix}load"):
            if self.gpu is None:
                return program_runtime.load(host, load_kernels(host.kernels), eager, title)
            facts, why = self.gpu.facts, self.gpu.why
            place = functools.partial(aside, facts.device, facts.products) if not why else nullcontext
            call = program_runtime.load(host, load_kernels(host.kernels, self.gpu.loops, place), eager, title)
        return recorded(call, facts, why, events, self.consumes, self.prefix)


@dataclass(frozen=True)
class Parts:
    """Programs between which sizes are found out."""

    host: HostProgram
    parts: tuple[Single, ...]

    known = True

    def load(self, eager: Compiled | None, events: Events) -> Compiled:
        return staged_runtime.load(self.host, [p.load(program_runtime.LEFT, events) for p in self.parts], eager)


@dataclass(frozen=True)
class Operators:
    """Operators that are called one by one."""

    call: Compiled
    consumes: bool

    known = False

    def load(self, eager: Compiled | None, events: Events) -> Compiled:
        return (lambda box: self.call(*box)) if self.consumes else self.call


Built = Single | Parts | Operators


def load_kernels(
    kernels: Sequence[Kernel], loops: Any = None, place: Callable[[], AbstractContextManager[None]] = nullcontext
) -> dict[str, Callable[..., Any]]:
    """Machine code for each kernel of the program, on its device; it will run in `place`. `loops`: the program, to be
    rehearsed; one that has been rehearsed before is not rehearsed again."""
    return targets.load(kernels, lambda device: None if loops is None else warm_up(loops, device, place))


def recorded(call: Compiled, facts: GraphFacts, why: str, events: Events, consumes: bool, prefix: str = "") -> Compiled:
    """`call` through CUDA graphs, unless there is a reason `why` not."""

    def report(why: str) -> None:
        events.artifact("perf_hints", lambda: why)

    if why:
        report(f"no CUDA graph: {why}")
        return call
    plain = call if not consumes else lambda *inputs: call(list(inputs))
    recorder = Recorder(plain, facts, report, events.title(prefix))
    return recorder if not consumes else lambda box: recorder(*box)


def without_history(call: Compiled) -> Compiled:
    """Nothing that the program computes is differentiated, though inputs require gradients."""

    def plain(*inputs: Any) -> Sequence[Any]:
        with torch.no_grad():
            return call(*inputs)

    return plain


def without_autocast(call: Compiled) -> Compiled:
    """The graph's casts are its own: what PyTorch would cast now, it may have computed in a block without autocast."""
    if not any(torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES):
        return call

    def plain(*inputs: Any) -> Sequence[Any]:
        with torch._C._DisableAutocast():
            return call(*inputs)

    return plain


# ---------------------------------------------------------------- a captured graph


@dataclass(frozen=True)
class Inference:
    """Of `aten`, placeholders and results are needed. `used`: see `ops.engine.without_gradients`; `grads`: do inputs
    require gradients? `late`: may it find out too late that sizes are not what it was made for?"""

    program: Built
    aten: AtenGraph
    used: tuple[int, ...]
    grads: bool
    late: bool


@dataclass(frozen=True)
class Training:
    """Of the graphs, placeholders and results are needed. `random`, `once`: see `CompiledPair`; `late` as above."""

    forward: Built
    backward: Built
    joint: JointGraph
    pair: Pair
    random: frozenset[torch.device]
    once: str
    late: bool


@dataclass(frozen=True)
class AsCaptured:
    """PyTorch runs the graph."""


Plan = Inference | Training | AsCaptured
Partial = Callable[[int], tuple[Built, bool]]


def assemble(plan: Plan, graph: Any, fakes: Sequence[Any], events: Events, partial: Partial | None = None) -> Compiled:
    """The callable of the captured graph's inputs, which look like `fakes`.

    `graph` has `forward`, which computes the same, and `meta`. `partial` makes backward programs for some tangents.
    """
    if isinstance(plan, AsCaptured):
        captured: Compiled = graph.forward
        return captured
    if isinstance(plan, Inference):
        return _inference(plan, graph, fakes, events)
    assert partial is not None
    return _training(plan, graph, fakes, events, partial)


def _inference(plan: Inference, graph: Any, fakes: Sequence[Any], events: Events) -> Compiled:
    aten = plan.aten
    plain, again = as_they_are(aten.returned), _again(graph)
    call = plan.program.load(again if plain else program_runtime.LEFT, events)
    call = without_autocast(without_history(call) if plan.grads else call)
    call = sync_version_counters(call, aten, plan.program.known)
    call = call if plain else build_outputs(call, again, aten.returned, (), fakes, results_of(aten))
    call = freed_history(call, plan.used) if plan.used else call
    written = [k for k, _ in aten.mutated]
    return fallback_on_overlap(call, _uncompiled(graph, plan.late), written, fakes, list(aten.constants.values()))


def _training(plan: Training, graph: Any, fakes: Sequence[Any], events: Events, partial: Partial) -> Compiled:
    """Forward and backward as two programs behind one differentiable callable."""
    joint, pair = plan.joint, plan.pair
    forward = plan.forward.load(program_runtime.LEFT, events)
    backward = plan.backward.load(None, events)
    replay = None if plan.once else Replay(graph.forward, joint)
    forward = sync_version_counters(without_autocast(forward), pair.forward, plan.forward.known)
    failed = graph.meta.get(FAILED, unheard)

    def some(there: int) -> tuple[Compiled, bool]:
        program, takes_all = partial(there)
        return program.load(None, events), takes_all

    compiled = CompiledPair(forward, backward, some, replay, plan.random, plan.once, failed)
    call = differentiable(joint, pair, compiled)
    returned, like = joint.aten.returned, results_of(joint.aten)
    call = build_outputs(call, _again(graph), returned, joint.rewritten, fakes, like, watcher(joint))
    uncompiled = _uncompiled(graph, plan.late)
    becoming = [each.position for each in joint.passed if each.kind == "input"]
    call = unless_hooked(call, uncompiled, pair.depends, becoming)
    return fallback_on_overlap(call, uncompiled, written_by(joint), fakes, list(joint.aten.constants.values()))


def written_by(joint: JointGraph) -> list[int]:
    """The inputs that it writes to."""
    return [k for k, _ in (*joint.aten.mutated, *joint.rewritten)]


def _uncompiled(graph: Any, late: bool) -> Compiled:
    """The graph, where the program must not run; what runs its code in plain Python, if it may find out too late that
    sizes are not what it was made for."""
    forward: Compiled = graph.forward
    return _elsewhere if late and graph.meta.get(REPEATED) else forward


def _elsewhere(*inputs: Any) -> Any:
    raise OtherSizes("tensors that do not overlap, without hooks", undone=True)


def _again(graph: Any) -> Compiled:
    """What raises PyTorch's own error for an index that is out of bounds: the graph, or the program that it is of."""
    forward: Compiled = graph.forward
    return program_runtime.LEFT if graph.meta.get(REPEATED) else forward
