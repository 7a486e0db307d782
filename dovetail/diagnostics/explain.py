"""What `dovetail.explain(fn)(*args)` reports: graphs, breaks, operators, guards and times."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.times import stage_lines
from dovetail.errors import Location, Unsupported
from dovetail.ir.captured import Break
from dovetail.ir.literals import in_words


@dataclass(frozen=True)
class BreakReason:
    """Why a graph ended, and where in the user's program, outermost function first."""

    reason: str
    user_stack: tuple[traceback.FrameSummary, ...] = ()


@dataclass(frozen=True)
class ExplainOutput:
    """The answer as data; `str()` lays it out for reading.

    `sizes`: for each compilation with symbolic sizes, which they are and what it relies on, with the user's lines.
    """

    graphs: tuple[torch.fx.GraphModule, ...]
    break_reasons: tuple[BreakReason, ...]
    out_guards: tuple[Any, ...]
    records: tuple[CompileRecord, ...] = field(repr=False)
    sizes: tuple[str, ...] = ()

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def ops_per_graph(self) -> list[list[Any]]:
        return [operators(graph) for graph in self.graphs]

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    @property
    def compile_times(self) -> str:
        return stage_lines(self.records)

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for number, cause in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {cause.reason}", "    User Stack:"]
            lines += [f"      {place}" for place in cause.user_stack]
        lines.append("Ops per Graph:")
        for number, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {number}:", *(f"    {op}" for op in ops)]
        lines.append("Out Guards:")
        for number, guard in enumerate(self.out_guards, 1):
            lines += [f"  Guard {number}:", *(f"    {line}" for line in guard_lines(guard))]
        if self.sizes:
            lines.append("Symbolic Sizes:")
        for number, text in enumerate(self.sizes, 1):
            lines += [f"  Graph {number}:", *(f"    {line}" for line in text.splitlines())]
        lines += ["Compile Times:", *(f"  {line}" for line in self.compile_times.splitlines())]
        return "\n".join(lines)


def operators(graph: torch.fx.GraphModule) -> list[Any]:
    """The functions that the graph calls. Methods of tensors are not counted, as in PyTorch's documents."""
    return [n.target for n in graph.graph.nodes if n.op == "call_function"]


def computes(graph: torch.fx.GraphModule) -> bool:
    return any(n.op.startswith("call") for n in graph.graph.nodes)


def summaries(stack: Sequence[Location]) -> tuple[traceback.FrameSummary, ...]:
    return tuple(traceback.FrameSummary(p.filename, p.line, p.function) for p in stack)


def guard_lines(guard: Any) -> list[str]:
    name = "process-wide state" if guard.source is None else guard.source.name()
    return [
        f"Name: {name!r}",
        f"Create Function: {guard.kind.name}",
        f"Expected: {in_words(guard.payload, 200)}",
        f"User Line: {guard.user_line}",
    ]


def _reason(found: Unsupported | Break) -> str:
    return f"[{found.code}] {found.reason}"


def explain_records(records: Sequence[CompileRecord], failures: Sequence[Unsupported]) -> ExplainOutput:
    """What the compilations of one run amount to."""
    captured = [r.captured for r in records if r.captured is not None]
    reasons = [BreakReason(_reason(e), summaries(e.stack)) for e in failures]
    for one in captured:
        reasons += [BreakReason(_reason(b), summaries(b.stack)) for b in one.breaks]
    guards = tuple(g for one in captured for g in one.guards)
    graphs = tuple(one.graph for one in captured if computes(one.graph))
    return ExplainOutput(graphs, tuple(reasons), guards, tuple(records), tuple(r.sizes for r in records if r.sizes))
