"""Loops of a captured graph. What exists outside of them they only read."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir.aten import AtenGraph, Subprogram, results_of
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.subgraphs import Record, call_node, inner, refused
from dovetail.ops.calls import higher_order


def _check_reads_only(recorder: AtenRecorder, graph: AtenGraph, private: int, what: str) -> None:
    """The first `private` inputs are the loop's own."""
    if any(position >= private for position, _ in graph.mutated):
        raise refused(recorder, f"{what} writes to a tensor that exists outside of it")


def while_loop(
    recorder: AtenRecorder, record: Record, test: Any, body: Any, carried: Any, test_lifted: Any, body_lifted: Any
) -> list:
    start = [t.clone(memory_format=torch.contiguous_format) for t in carried]
    graphs = (
        inner(recorder, record, test, [*start, *test_lifted]), inner(recorder, record, body, [*start, *body_lifted])
    )  # fmt: skip
    _check_reads_only(recorder, graphs[0], 0, "the condition of torch.while_loop")
    _check_reads_only(recorder, graphs[1], len(start), "the body of torch.while_loop")
    loop = Subprogram("while_loop", graphs, higher_order.loop)
    return call_node(recorder, loop, (start, test_lifted, body_lifted), results_of(graphs[1]))


def scan(recorder: AtenRecorder, record: Record, body: Any, count: int, init: Any, xs: Any, lifted: Any) -> list:
    start = [t.clone(memory_format=torch.contiguous_format) for t in init]
    rows = [x.select(0, 0) for x in xs]
    graph = inner(recorder, record, body, [*start, *rows, *lifted])
    _check_reads_only(recorder, graph, len(start), "the function of scan")
    vals, length = results_of(graph), xs[0].shape[0]
    vals = [*vals[:count], *(_stacked(v, length) for v in vals[count:])]
    steps = Subprogram("scan", (graph,), functools.partial(higher_order.steps, count))
    return call_node(recorder, steps, (start, xs, lifted), vals)


def _stacked(val: Any, length: Any) -> Any:
    if not isinstance(val, torch.Tensor):
        return val
    with _disable_current_modes():
        return val.unsqueeze(0).repeat(length, *[1] * val.dim())
