"""The stages of one compilation, in order. No other file names them all.

    capture    run the bytecode symbolically: a torch-level graph, guards, residual code
    normalize  the graph on fake tensors: functional ATen operators
    lower      each operator as loops over symbolic indices
    schedule   which loops share a kernel, and where temporaries live
    codegen    kernels as LLVM IR, the host program as Python
    runtime    machine code and a callable

`events` times, logs and dumps each stage's output; the stages know nothing of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch.fx

from dovetail.autograd import draws, partition, unrepeatable
from dovetail.autograd.absent import tells_sizes, without
from dovetail.autograd.exposed import exposed
from dovetail.capture import Watch, capture, capture_with_breaks, resume_eagerly
from dovetail.codegen import checked, cpu, gpu, host, staged
from dovetail.codegen.library import HAS_OUT
from dovetail.diagnostics.events import Events
from dovetail.diagnostics.kernels import kernels_text
from dovetail.errors import InternalError, Unsupported
from dovetail.ir.aten import AtenGraph, results_of, subprograms
from dovetail.ir.captured import FAILED, REPEATED, Captured, Continuation
from dovetail.ir.checks import OtherSizes, assumed
from dovetail.ir.graphtext import graph_text
from dovetail.ir.joint import JointGraph, NotDifferentiable, Pair
from dovetail.ir.kernel import Kernel
from dovetail.ir.launch import GraphFacts
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Batch, Group, Program
from dovetail.ir.settings import AUTOCAST_DEVICES, turns_settings
from dovetail.ir.staged import Part, Ref, Staged
from dovetail.ir.text import fusion_text, program_text
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.ir.wrapped import Apart, KeptWhole, parts_of
from dovetail.lower import in_stages, in_turns, lower
from dovetail.normalize import normalize, normalize_joint
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.passes.dead import remove_dead
from dovetail.normalize.text import aten_text
from dovetail.normalize.wrapped import take_apart
from dovetail.ops.engine import needs_autograd, needs_engine, without_gradients
from dovetail.ops.fake.number import NumberNeeded
from dovetail.ops.fake.wrapped import is_wrapper
from dovetail.options import Options
from dovetail.runtime import cpu as cpu_runtime
from dovetail.runtime import gpu as gpu_runtime
from dovetail.runtime import program as program_runtime
from dovetail.runtime import staged as staged_runtime
from dovetail.runtime.autograd import CompiledPair, differentiable, unheard, unless_hooked
from dovetail.runtime.gpu.graphs import Recorder, aside
from dovetail.runtime.gpu.rehearsal import rehearse
from dovetail.runtime.listening import watcher
from dovetail.runtime.making import maker
from dovetail.runtime.outputs import as_they_are, handed_out, recounted
from dovetail.runtime.overlap import protect, several_in_one_place
from dovetail.runtime.replay import Replay
from dovetail.runtime.spent import spent
from dovetail.runtime.undisturbed import without_overrides
from dovetail.runtime.wrapped import Again, depends, inference, put_together
from dovetail.runtime.wrapped import differentiable as differentiable_whole
from dovetail.schedule import gather, graph_facts, plan_memory, reuse, schedule, unrecordable

Compiled = Callable[..., Sequence[Any]]


def trace(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, events: Events,
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


def compile_graph(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The default backend: a callable of the graph's inputs that returns its outputs."""
    return _compile(graph, fakes, options, events, build)


def compile_aten(graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events) -> Compiled:
    """The `aot_eager` backend: stop after the graphs and run their operators one by one, those that draw among them."""
    return _compile(graph, fakes, replace(options, fallback_random=True), events, _operators)


MOST_PARTIAL = 8  # backward programs of a function for some of its results; further ones run operator by operator

#: Compiles one functional graph, `(graph, what does the same, options, events, prefix of stages)`; None where it
#: cannot. Without anything that does the same, the callable takes a list of the inputs, which it empties.
Builder = Callable[[AtenGraph, "Compiled | None", Options, Events, str], "Compiled | None"]


def _compile(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events, builder: Builder
) -> Compiled:
    as_it_is = turns_settings(graph.graph) or needs_engine(graph.graph, fakes)
    if as_it_is or takes_numbers_out(graph.graph):
        return graph
    used = without_gradients(graph.graph)
    if used is None:
        return graph
    if has_wrappers(graph.graph):
        return graph if used else _compile_apart(graph, fakes, options, events, builder)
    try:
        if needs_autograd(fakes) and not used:
            with events.stage("normalize"):
                joint = normalize_joint(graph, fakes, options)
            if isinstance(joint, JointGraph):
                return _train(graph, fakes, joint, options, events, builder)
            aten = joint
        else:
            with events.stage("normalize"):
                aten = normalize(graph, fakes, options)
    except NumberNeeded:
        return graph  # PyTorch's operators take the number when they run
    except NotDifferentiable as error:
        why = f"runs operator by operator, for lack of a backward graph: {error}"
        events.artifact("perf_hints", lambda: why)
        return graph
    events.artifact("aot_graphs", lambda: aten_text(aten))
    written = [k for k, _ in aten.mutated]
    if several_in_one_place(fakes, written):
        return graph
    plain = as_they_are(aten.returned)
    again = _again(graph)
    call = builder(aten, again if plain else program_runtime.LEFT, options, events, "")
    if call is None:
        return graph
    call = without_autocast(without_history(call) if needs_autograd(fakes) else call)
    call = recounted(call, aten, builder is build)
    call = call if plain else handed_out(call, again, aten.returned, (), fakes, results_of(aten))
    call = spent(call, used) if used else call
    return protect(call, _uncompiled(graph), written, fakes, list(aten.constants.values()))


def _uncompiled(graph: torch.fx.GraphModule) -> Compiled:
    """The graph, where the program must not run; what runs its code in plain Python, if it may find out too late that
    sizes are not what it was made for."""
    late = any(n.target is assumed and not n.args[1] for n in graph.graph.nodes)
    return _elsewhere if late and graph.meta.get(REPEATED) else graph.forward


def _elsewhere(*inputs: Any) -> Any:
    raise OtherSizes("tensors that do not overlap, without hooks", undone=True)


def _again(graph: torch.fx.GraphModule) -> Compiled:
    """What raises PyTorch's own error for an index that is out of bounds: the graph, or the program that it is of."""
    return program_runtime.LEFT if graph.meta.get(REPEATED) else graph.forward


def _compile_apart(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], options: Options, events: Events, builder: Builder
) -> Compiled:
    """Of tensors that are made of others, what they are made of is computed."""
    try:
        with events.stage("normalize"):
            apart = take_apart(graph, fakes, options)
        compile_parts = _apart if isinstance(apart.program, AtenGraph) else _train_apart
        found = compile_parts(graph, fakes, apart, options, events, builder)
    except (KeptWhole, NotDifferentiable, Unsupported, RuntimeError) as error:  # of PyTorch's, for its own reasons
        why = f"runs operator by operator, with the tensors whole: {error}"
        events.artifact("perf_hints", lambda: why)
        return graph
    aten = apart.aten
    written, parts = [k for k, _ in aten.mutated], inputs_of(apart)
    if found is None or several_in_one_place(parts, written):
        return graph
    call, reach = found
    separate = protect(lambda *_: True, lambda *_: False, written, parts, list(aten.constants.values()))
    return unless_hooked(put_together(call, graph.forward, apart, separate), graph.forward, reach)


def inputs_of(apart: Apart) -> list[Any]:
    """Fakes of what the inputs are made of."""
    places = [k for template in apart.inputs for k in parts_of(template)]
    return [n.meta["val"] for n in apart.aten.graph.nodes if n.op == "placeholder"][: len(places)]


def _apart(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], apart: Apart, options: Options, events: Events,
    builder: Builder,
) -> tuple[Compiled, Sequence[int]] | None:  # fmt: skip
    aten = apart.aten
    events.artifact("aot_graphs", lambda: aten_text(aten))
    outputs = maker(aten.returned, inputs_of(apart), results_of(aten))
    call = builder(aten, program_runtime.LEFT, options, events, "")
    if call is None:
        return None
    call = without_autocast(without_history(call) if needs_autograd(fakes) else call)
    return inference(recounted(call, aten, builder is build), outputs, apart), ()


def _train_apart(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], apart: Apart, options: Options, events: Events,
    builder: Builder,
) -> tuple[Compiled, Sequence[int]] | None:  # fmt: skip
    """And for each input the outputs that its gradient is computed from."""
    joint = apart.program
    assert isinstance(joint, JointGraph)
    events.artifact("aot_joint_graphs", lambda: aten_text(joint.aten))
    with events.stage("autograd"):
        pair = partition(joint)
    events.artifact("aot_graphs", lambda: f"forward\n{aten_text(pair.forward)}\nbackward\n{aten_text(pair.backward)}")
    outputs = maker(joint.aten.returned, inputs_of(apart), results_of(joint.aten))
    forward = builder(pair.forward, program_runtime.LEFT, options, events, "forward ")
    backward = builder(pair.backward, None, options, events, "backward ")
    if forward is None or backward is None:
        return None
    forward = recounted(without_autocast(forward), pair.forward, builder is build)
    once = "writes to its inputs" if joint.aten.mutated else unrepeatable(joint)
    replay = None if once else Again(without_overrides(graph.forward), joint, apart)
    if once and len(apart.tangents) > 1:
        raise KeptWhole(f"it {once}, and a backward pass from some of the results would have to run it again")
    compiled = CompiledPair(forward, backward, _no_partial, replay, draws(pair.forward), once)
    return differentiable_whole(pair, compiled, outputs, apart, exposed(joint, pair, apart)), depends(pair, apart)


def _no_partial(there: int) -> Any:
    raise InternalError("runtime", "part of a backward pass is not run by the compiled program here")


def _train(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], joint: JointGraph, options: Options, events: Events,
    builder: Builder,
) -> Compiled:  # fmt: skip
    """Forward and backward as two programs behind one differentiable callable."""
    events.artifact("aot_joint_graphs", lambda: aten_text(joint.aten))
    with events.stage("autograd"):
        pair = partition(joint)
    events.artifact("aot_graphs", lambda: f"forward\n{aten_text(pair.forward)}\nbackward\n{aten_text(pair.backward)}")
    written = [k for k, _ in (*joint.aten.mutated, *joint.rewritten)]
    if several_in_one_place(fakes, written):
        return graph
    forward = builder(pair.forward, program_runtime.LEFT, options, events, "forward ")
    backward = builder(pair.backward, None, options, events, "backward ")
    if forward is None or backward is None:
        return graph
    once = unrepeatable(joint)
    replay = None if once else Replay(graph.forward, joint)
    failed = graph.meta.get(FAILED, unheard)
    forward = recounted(without_autocast(forward), pair.forward, builder is build)
    partial = _partial(joint, pair, options, events, builder)
    compiled = CompiledPair(forward, backward, partial, replay, draws(pair.forward), once, failed)
    call = differentiable(joint, pair, compiled)
    returned, like = joint.aten.returned, results_of(joint.aten)
    call = handed_out(call, _again(graph), returned, joint.rewritten, fakes, like, watcher(joint))
    uncompiled = _uncompiled(graph)
    becoming = [each.position for each in joint.passed if each.kind == "input"]
    call = unless_hooked(call, uncompiled, pair.depends, becoming)
    return protect(call, uncompiled, written, fakes, list(joint.aten.constants.values()))


def _partial(
    joint: JointGraph, pair: Pair, options: Options, events: Events, builder: Builder
) -> Callable[[int], tuple[Compiled, bool]]:
    """Makes the backward program for some of the tangents, when a call first needs it."""
    tangents = [name for name, _ in joint.tangents]
    left = MOST_PARTIAL

    def made(there: int) -> tuple[Compiled, bool]:
        nonlocal left
        absent = {name for k, name in enumerate(tangents) if not there >> k & 1}
        graph = without(pair.backward, {*tangents}, absent)
        remove_dead(graph)
        events.artifact("aot_graphs", lambda: f"backward, without {', '.join(sorted(absent))}\n{aten_text(graph)}")
        left -= 1
        few = left >= 0 or in_stages(graph) is not None
        call = (builder if few else _operators)(graph, None, options, events, "backward ")
        if call is None:
            raise InternalError("codegen", "a part of a backward pass cannot be compiled, though the whole can")
        return call, tells_sizes(pair.backward)

    return made


def _operators(
    aten: AtenGraph, eager: Compiled | None, options: Options, events: Events, prefix: str = ""
) -> Compiled | None:
    if in_stages(aten) is not None:
        return None
    call = interpreter(aten)
    return call if eager is not None else lambda box: call(*box)


def build(
    aten: AtenGraph, eager: Compiled | None, options: Options, events: Events, prefix: str = "", own: bool = True
) -> Compiled | None:
    """From operators to machine code; None if the graph computes where there are no kernels. `eager` does the same.
    `own`: are its inputs those of the compiled function, unless the callable takes a list?"""
    own = own and eager is not None
    stages = in_stages(aten)
    if stages is None and not options.without_graphs:
        stages = in_turns(aten)
    if stages is not None:
        return _build_stages(stages, eager, options, events, prefix, own)
    return _build(aten, eager, options, events, prefix, own=own)


def _build_stages(
    stages: Staged, eager: Compiled | None, options: Options, events: Events, prefix: str, own: bool
) -> Compiled | None:
    """What finds out sizes is called between parts that are compiled on their own."""
    parts: list[Compiled] = []
    for step in stages.steps:
        if isinstance(step, Part):
            moving = [k for k, v in enumerate(step.given) if isinstance(v, Ref) and v.name not in stages.inputs]
            part = _build(step.graph, program_runtime.LEFT, options, events, prefix, stages.waits, moving, own)
            if part is None:
                return None
            parts.append(part)
    text = staged.generate(stages, consumes=eager is None)
    events.artifact("output_code", lambda: text.text)
    return staged_runtime.load(text, parts, eager)


def _build(
    aten: AtenGraph, eager: Compiled | None, options: Options, events: Events, prefix: str, waits: str = "",
    moving: Sequence[int] = (), own: bool = False,
) -> Compiled | None:  # fmt: skip
    """`waits`: operators in whose results sizes are read before this program runs, and after it. `moving`: inputs that
    are made anew for each call. `own`: are the others those of the compiled function?"""
    for inner in subprograms(aten):
        plain = map(interpreter, inner.graphs)
        pairs = zip(inner.graphs, plain, strict=True)
        inner.callables = tuple(build(g, p, options, events, own=False) or p for g, p in pairs)

    with events.stage(f"{prefix}lower"):
        program = lower(aten, options)
    events.artifact("lowered", lambda: program_text(program))
    if why := no_kernels(program):
        events.artifact("perf_hints", lambda: f"runs uncompiled: {why}")
        return None

    with events.stage(f"{prefix}schedule"):
        scheduled = schedule(program, options)
    events.artifact("schedule", lambda: program_text(scheduled))
    events.artifact("fusion", lambda: fusion_text(program, scheduled))

    with events.stage(f"{prefix}codegen"):
        kernels = {item.name: _generate(item, options) for item in scheduled.items if isinstance(item, Group)}
        fused, scheduled = scheduled, reuse(gather(scheduled, kernels))
        batches = [item for item in scheduled.items if isinstance(item, Batch)]
        kernels |= {b.name: _generate(b.groups[0], options, many=True) for b in batches}
        memory = plan_memory(scheduled, HAS_OUT)
        writer = checked if options.check_kernels else host
        text = writer.generate(scheduled, kernels, memory, consumes=eager is None)
    events.artifact("output_code", lambda: text.text)
    events.artifact("kernels", lambda: kernels_text(prefix, program, fused, scheduled, kernels, memory, text))
    events.artifact("kernel_code", lambda: "\n".join(kernel.text for kernel in text.kernels))

    if all(d.type == "cpu" for d in devices(scheduled)):
        with events.stage(f"{prefix}load"):
            return program_runtime.load(text, cpu_runtime.load(text.kernels), eager, events.title(prefix))
    facts = replace(graph_facts(scheduled, aten.saved), moving=frozenset(moving), own=own)
    why = unrecorded(scheduled, options, waits)
    place = functools.partial(aside, facts.device, facts.products) if not why else nullcontext
    with events.stage(f"{prefix}load"):
        call = program_runtime.load(text, load_kernels(text.kernels, scheduled, place), eager, events.title(prefix))
    return recorded(call, facts, why, events, eager is None, prefix)


def unrecorded(program: Program, options: Options, waits: str) -> str:
    """Why a GPU's program will have no CUDA graph; empty if it will."""
    why = options.without_graphs or ("kernels are checked" if options.check_kernels else "")
    why = why or (f"{waits} finds out a size, and the program waits for the device to tell it" if waits else "")
    return why or ("several devices take part" if len(devices(program)) > 1 else unrecordable(program))


def recorded(
    call: Compiled, facts: GraphFacts, why: str, events: Events, consumes: bool, prefix: str = ""
) -> Compiled:
    """`call` through CUDA graphs, unless there is a reason `why` not."""

    def report(why: str) -> None:
        events.artifact("perf_hints", lambda: why)

    if why:
        report(f"no CUDA graph: {why}")
        return call
    plain = call if not consumes else lambda *inputs: call(list(inputs))
    recorder = Recorder(plain, facts, report, events.title(prefix))
    return recorder if not consumes else lambda box: recorder(*box)


def devices(program: Program) -> set[torch.device]:
    """Where it reads and writes."""
    return {b.device for b in program.inputs} | {b.device for i in program.items for b in writes(i).values()}


def _generate(group: Group, options: Options, many: bool = False) -> Kernel:
    """The kernel of a group, or of many like it, for the device that it writes to; a check of sizes alone has none."""
    kinds = {buffer.device.type for buffer in (*reads(group).values(), *writes(group).values())}
    return (cpu if kinds <= {"cpu"} else gpu).generate(group, options, many=many)


def load_kernels(
    kernels: Sequence[Kernel], program: Program, place: Callable[[], AbstractContextManager[None]]
) -> dict[str, Callable[..., Any]]:
    """Machine code for each kernel of the program, on its device; it will run in `place`."""
    loaded: dict[str, Callable[..., Any]] = cpu_runtime.load([k for k in kernels if k.launch is None])
    for device in dict.fromkeys(k.pointers[0].device for k in kernels if k.launch is not None):
        mine = [k for k in kernels if k.launch is not None and k.pointers[0].device == device]
        loaded |= gpu_runtime.load(mine, device, meanwhile=functools.partial(rehearse, program, device, place))
    return loaded


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


def no_kernels(program: Program) -> str:
    """Why a device that the program computes on has no kernels; empty if all have."""
    reasons = (gpu_runtime.available(d) for d in sorted(devices(program), key=str) if d.type != "cpu")
    return next((why for why in reasons if why), "")


def resumed(rest: Continuation) -> Callable[..., Any]:
    """What follows a graph break as a callable of its parameters: `trace` takes it, and eager can run it."""
    return resume_eagerly(rest)


def takes_numbers_out(graph: torch.fx.Graph) -> bool:
    """Does the graph compute with numbers that tensors hold, other than sizes? No kernels are written for that yet."""
    items = [n for n in graph.nodes if n.op == "call_method" and n.target == "item"]
    return any(not isinstance(n.meta.get("fake"), torch.SymInt) for n in items)


def has_wrappers(graph: torch.fx.Graph) -> bool:
    """Do tensors that are made of others take part?"""
    return any(is_wrapper(n.meta.get("fake")) for n in graph.nodes)
