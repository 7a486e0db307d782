"""What may be recorded as a CUDA graph, and what the recorder must know of it."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.aten import Subprogram
from dovetail.ir.launch import GraphFacts
from dovetail.ir.liveness import leaves, needed_later, writes
from dovetail.ir.loops import Batch, Group, LibraryCall, Param, Program
from dovetail.ops.own.user_kernel import user_kernel_functional

aten = torch.ops.aten

#: Operators whose results' sizes or Python values depend on data: they wait for the device.
_WAITS = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_PRODUCTS = frozenset((aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default))
#: A replay costs as much as so many launches; programs of fewer are not recorded, unless one is of many groups, whose
#: addresses would be gathered and brought to the device for each call.
FEWEST = 3


def unrecordable(program: Program) -> str:
    """Why not; empty if it may be."""
    launches = [item for item in program.items if isinstance(item, (Group, LibraryCall, Batch))]
    if len(launches) < FEWEST and not any(map(_slow_to_launch, launches)):
        return "its few launches take less time than a replay"
    for item in program.items:
        if isinstance(item, LibraryCall):
            if isinstance(item.operator, Subprogram):
                return f"{item.name} runs Python code of its own"
            if any(tag in item.operator.tags for tag in _WAITS) and item.operator is not torch.ops.aten.index.Tensor:
                return f"{item.operator} waits for the device"
    return ""


def _slow_to_launch(item: Any) -> bool:
    """Does it take longer than a replay? Triton looks at all arguments of the program's kernels."""
    return isinstance(item, Batch) or isinstance(item, LibraryCall) and item.operator is user_kernel_functional


def graph_facts(program: Program, saved: int = 0, backward: bool = False) -> GraphFacts:
    """For a program on one CUDA device, whose last `saved` results are for a backward pass, or that is one."""
    given = program.parameters()
    places = {p.name: k for k, p in enumerate(given)}
    numbers = tuple(places[param.name] for _, param in program.numbers)
    arguments = leaves([(i.args, dict(i.kwargs)) for i in program.items if isinstance(i, LibraryCall)])
    called = {p.name for p in arguments if isinstance(p, Param)}
    written = tuple(places[old.name] for old, _ in program.mutated if old.name in places)
    called |= {param.name for param, _ in program.measured}
    device = next(b.device for b in (*program.inputs, *(b for i in program.items for b in writes(i).values())))
    fixed = tuple(sorted(places[name] for name in called))
    products = any(isinstance(i, LibraryCall) and i.operator in _PRODUCTS for i in program.items)
    later = tuple(needed_later(program))
    shares = (backward or saved > 0) and not program.buckets
    return GraphFacts(
        device, numbers, fixed, written, bool(program.sizes), saved, products, shares=shares, later=later
    )  # fmt: skip
