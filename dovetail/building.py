"""From one functional graph to the texts of its program: lower, schedule, codegen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from dovetail import targets
from dovetail.assembly import Built, Compiled, OnGpu, Parts, Single
from dovetail.codegen.host import checked, staged
from dovetail.codegen.host import program as host
from dovetail.codegen.host.library_calls import HAS_OUT
from dovetail.diagnostics.events import Events
from dovetail.diagnostics.kernels import kernels_text
from dovetail.ir.aten import AtenGraph, Uncompiled, subprograms
from dovetail.ir.devices import traits
from dovetail.ir.liveness import writes
from dovetail.ir.loops import Batch, Group, Program
from dovetail.ir.staged import Part, Ref, Staged
from dovetail.ir.text import fusion_text, program_text
from dovetail.lower import in_stages, in_turns, lower
from dovetail.normalize.interpret import interpreter
from dovetail.options import Options
from dovetail.products import multiply_in_kernels, pad_products
from dovetail.repeats import Irregular
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call
from dovetail.schedule import (
    gather,
    graph_facts,
    in_buckets,
    plan_memory,
    reuse,
    run_beside,
    schedule,
    unrecordable,
)

#: Of a program as lowered, scheduled, and what schedules one: the scheduled one whose texts are wanted.
Change = Callable[[Program, Program, Callable[[Program], Program]], Program]
#: The program, scheduled, with its outputs in buckets.
Divide = Callable[[Program], Program]


def dividing(options: Options, kept: Sequence[int]) -> Divide | None:
    """Puts the gradients of a backward program in buckets, where somebody wants them early. `kept`: see `Pair`."""
    limits = options.buckets
    return None if limits is None else lambda program: in_buckets(program, *limits, kept)


def build(
    aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str = "",
    unfold: Change | None = None, divide: Divide | None = None, own: bool = True,
) -> Built:  # fmt: skip
    """From operators to texts. `own`: are its inputs those of the compiled function, unless the callable takes a list?
    `unfold` gives the scheduled program more turns, `divide` buckets, but for one that is run in parts.

    Raises Uncompiled if the graph computes where there are no kernels."""
    own = own and not consumes
    stages = in_stages(aten)
    if stages is None and not options.without_graphs:
        stages = in_turns(aten)
    if stages is not None:
        if unfold is not None:
            raise Irregular("the graph is run in parts")
        return _build_stages(stages, consumes, options, events, prefix, own)
    return _build(aten, consumes, options, events, prefix, own=own, unfold=unfold, divide=divide)


def _build_stages(
    stages: Staged, consumes: bool, options: Options, events: Events, prefix: str, own: bool
) -> Built:
    """What finds out sizes is called between parts that are compiled on their own."""
    parts: list[Single] = []
    for step in stages.steps:
        if isinstance(step, Part):
            moving = [k for k, v in enumerate(step.given) if isinstance(v, Ref) and v.name not in stages.inputs]
            parts.append(_build(step.graph, False, options, events, prefix, stages.waits, moving, own))
    text = staged.generate(stages, consumes=consumes)
    events.artifact("output_code", lambda: text.text)
    return Parts(text, tuple(parts))


def _build(
    aten: AtenGraph, consumes: bool, options: Options, events: Events, prefix: str, waits: str = "",
    moving: Sequence[int] = (), own: bool = False, unfold: Change | None = None, divide: Divide | None = None,
) -> Single:  # fmt: skip
    """`waits`: operators in whose results sizes are read before this program runs, and after it, if it has any sizes.
    `moving`: inputs that are made anew for each call. `own`: are the others those of the compiled function?"""
    for inner in subprograms(aten):
        inner.built = tuple(build(g, False, options, events, own=False) for g in inner.graphs)
        inner.callables = tuple(
            _callable(g, made, events) for g, made in zip(inner.graphs, inner.built, strict=True)
        )

    loops, scheduled = scheduled_loops(aten, options, events, prefix)
    saved = aten.saved
    if unfold is not None:
        with events.stage(f"{prefix}unfold"):
            few, scheduled = scheduled, unfold(loops, scheduled, lambda program: schedule(program, options))
            saved += len(scheduled.outputs) - len(few.outputs) if saved else 0
    if divide is not None:
        scheduled = divide(scheduled)
    scheduled = run_beside(scheduled)
    events.artifact("schedule", lambda: program_text(scheduled))
    events.artifact("fusion", lambda: fusion_text(loops, scheduled))

    with events.stage(f"{prefix}codegen"):
        groups = [item for item in scheduled.items if isinstance(item, Group)]
        targets.begin((), {b.device for group in groups for b in writes(group).values()})
        kernels = targets.generate_all(groups, options)
        fused, scheduled = scheduled, reuse(gather(scheduled, kernels))
        batches = [item for item in scheduled.items if isinstance(item, Batch)]
        kernels |= {b.name: targets.generate(b.groups[0], options, many=True) for b in batches}
        targets.begin_launched(kernels, (i.name for i in scheduled.items if isinstance(i, (Group, Batch))))
        memory = plan_memory(scheduled, HAS_OUT)
        writer = checked if options.check_kernels else host
        text = writer.generate(scheduled, kernels, memory, consumes=consumes)
    events.artifact("output_code", lambda: text.text)
    events.artifact("kernels", lambda: kernels_text(prefix, loops, fused, scheduled, kernels, memory, text))
    events.artifact("kernel_code", lambda: "\n".join(kernel.text for kernel in text.kernels))

    if not any(traits(d).records for d in devices(scheduled)):
        return Single(text, prefix, consumes)
    facts = replace(graph_facts(scheduled, saved, consumes), moving=frozenset(moving), own=own)
    why = unrecorded(scheduled, options, waits if scheduled.sizes else "")
    return Single(text, prefix, consumes, OnGpu(facts, why, scheduled))


def scheduled_loops(
    aten: AtenGraph, options: Options, events: Events, prefix: str
) -> tuple[Program, Program]:
    """As lowered, and scheduled. Raises Uncompiled."""
    with events.stage(f"{prefix}lower"):
        multiply_in_kernels(aten, options)
        pad_products(aten, options)
        loops = lower(aten, options)
    events.artifact("lowered", lambda: program_text(loops))
    if why := no_kernels(loops):
        raise Uncompiled(why)
    with events.stage(f"{prefix}schedule"):
        return loops, schedule(loops, options)


def _callable(graph: AtenGraph, built: Built, events: Events) -> Compiled:
    """Of a graph that an operator runs, and what it has become."""
    return load_call(CallPlan(checks=built.checks), built.load(events), interpreter(graph))[0]


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
