"""What `dovetail.explain(fn)(*args)` reports: graphs, breaks, operators, guards and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.times import stage_lines
from dovetail.errors import Location, Unsupported


@dataclass(frozen=True)
class BreakReason:
    """Why a graph ended, and where in the user's program."""

    reason: str
    user_stack: tuple[Location, ...] = ()


@dataclass(frozen=True)
class ExplainOutput:
    """The answer as data; `str()` lays it out for reading."""

    graphs: tuple[torch.fx.GraphModule, ...]
    break_reasons: tuple[BreakReason, ...]
    out_guards: tuple[Any, ...]
    records: tuple[CompileRecord, ...] = field(repr=False)

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
            lines += [
                f"      <FrameSummary file {p.filename}, line {p.line} in {p.function}>" for p in cause.user_stack
            ]
        lines.append("Ops per Graph:")
        for number, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {number}:", *(f"    {op_name(op)}" for op in ops)]
        lines.append("Out Guards:")
        for number, guard in enumerate(self.out_guards, 1):
            lines += [f"  Guard {number}:", *(f"    {line}" for line in guard_lines(guard))]
        lines += ["Compile Times:", *(f"  {line}" for line in self.compile_times.splitlines())]
        return "\n".join(lines)


def operators(graph: torch.fx.GraphModule) -> list[Any]:
    """Every call in the graph: functions, methods by name, modules."""
    return [n.target for n in graph.graph.nodes if n.op in ("call_function", "call_method", "call_module")]


def op_name(op: Any) -> str:
    if isinstance(op, str):
        return op
    module = getattr(op, "__module__", None)
    name = getattr(op, "__qualname__", None) or getattr(op, "__name__", repr(op))
    return f"{module}.{name}" if module and module != "builtins" and not str(op).startswith("aten") else str(name)


def guard_lines(guard: Any) -> list[str]:
    name = "process-wide state" if guard.source is None else guard.source.name()
    payload = repr(guard.payload)
    return [
        f"Name: {name!r}",
        f"Create Function: {guard.kind.name}",
        f"Expected: {payload if len(payload) <= 200 else payload[:197] + '...'}",
        f"User Line: {guard.user_line}",
    ]


def explain_records(records: Sequence[CompileRecord], failures: Sequence[Unsupported]) -> ExplainOutput:
    """What the compilations of one run amount to."""
    captured = [r.captured for r in records if r.captured is not None]
    reasons = [BreakReason(f"[{e.code}] {e.reason}", e.stack) for e in failures]
    for one in captured:
        reasons += [BreakReason(str(b), getattr(b, "stack", ())) for b in one.breaks]
    guards = tuple(g for one in captured for g in one.guards)
    graphs = tuple(one.graph for one in captured if operators(one.graph))
    return ExplainOutput(graphs, tuple(reasons), guards, tuple(records))
