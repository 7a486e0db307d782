"""What `dovetail.explain(fn)(*args)` reports: graphs, breaks, operators, guards and times.

Printed, it fits one screen: what broke graphs comes first, each cause once, with what to do about it; long lists
are counted. `details()` has every line.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch.fx

from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.times import by_stage, stage_lines
from dovetail.ir.captured import Break
from dovetail.ir.literals import in_words
from dovetail.ir.nodes import tosses
from dovetail.ir.records import dataclass

#: So many of each are printed before the rest is counted.
MOST_CAUSES, MOST_GRAPHS, MOST_SIZES, MOST_STAGES, MOST_NAMES, FEW = 5, 6, 6, 5, 6, 12


@dataclass(frozen=True)
class BreakReason:
    """Why a graph ended, and where in the user's program, outermost function first."""

    reason: str
    user_stack: tuple[traceback.FrameSummary, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class ExplainOutput:
    """The answer as data; `str()` lays it out for reading.

    `sizes`: for each compilation with symbolic sizes, which they are and what it relies on, with the user's lines.
    """

    graphs: tuple[torch.fx.GraphModule, ...]
    break_reasons: tuple[BreakReason, ...]
    out_guards: tuple
    records: tuple[CompileRecord, ...] = field(repr=False)
    sizes: tuple[str, ...] = ()

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def ops_per_graph(self) -> list[list]:
        return [operators(graph) for graph in self.graphs]

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    @property
    def compile_times(self) -> str:
        return stage_lines(self.records)

    def __str__(self) -> str:
        return "\n".join([
            *self._counts(), *self._causes(), "Ops per Graph:", *_indented(self._operators(), 2),
            "Out Guards:", *_indented(self._guards(), 2), *self._sizes(), "Compile Times:",
            *_indented(self._times(), 2), "Everything: print(explanation.details())",
        ])  # fmt: skip

    def details(self) -> str:
        """All there is: every break, operator, guard, size and stage."""
        lines = [*self._counts(), "Break Reasons:"]
        for number, cause in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", *_indented(_told(cause), 4)]
        lines.append("Ops per Graph:")
        for number, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {number}:", *(f"    {op}" for op in ops)]
        lines.append("Out Guards:")
        for number, guard in enumerate(self.out_guards, 1):
            lines += [f"  Guard {number}:", *(f"    {line}" for line in guard_lines(guard))]
        lines += [*self._sizes(None), "Compile Times:", *_indented(self.compile_times.splitlines(), 2)]
        return "\n".join(lines)

    def _counts(self) -> list[str]:
        return [
            f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
        ]  # fmt: skip

    def _causes(self) -> Iterator[str]:
        """Each cause once, the most frequent first."""
        yield "Break Reasons:"
        places = [(c.reason, tuple((p.filename, p.lineno) for p in c.user_stack)) for c in self.break_reasons]
        found = dict(zip(places, self.break_reasons))
        times = Counter(places).most_common()
        for number, (place, count) in enumerate(times[:MOST_CAUSES], 1):
            yield f"  Break Reason {number}:" + (f" {count} times" if count > 1 else "")
            yield from _indented(_told(found[place], innermost=True), 4)
        if len(times) > MOST_CAUSES:
            yield f"  and {len(times) - MOST_CAUSES} more"

    def _operators(self) -> Iterator[str]:
        whole = self.op_count <= FEW
        for number, ops in enumerate(self.ops_per_graph[:MOST_GRAPHS], 1):
            yield f"Ops {number}:" + ("" if whole else f" {len(ops)}: {_tally(map(_name, ops))}")
            yield from (f"  {op}" for op in ops if whole)
        if self.graph_count > MOST_GRAPHS:
            yield f"and {self.graph_count - MOST_GRAPHS} graphs more"

    def _guards(self) -> list[str]:
        return [f"{len(self.out_guards)}: {_tally(guard.kind.name for guard in self.out_guards)}"]

    def _sizes(self, most: int | None = MOST_SIZES) -> Iterator[str]:
        if not self.sizes:
            return
        yield "Symbolic Sizes:"
        for number, text in enumerate(self.sizes, 1):
            lines = text.splitlines()
            yield f"  Graph {number}:"
            yield from _indented(lines[:most], 4)
            if most is not None and len(lines) > most:
                yield f"    and {len(lines) - most} lines more"

    def _times(self) -> list[str]:
        total = sum(record.seconds for record in self.records)
        stages = sorted(by_stage(self.records).items(), key=lambda item: -sum(item[1]))
        longest = ", ".join(f"{name} {sum(runs):.2f}" for name, runs in stages[:MOST_STAGES])
        return [f"{total:.2f} s in {_count(len(self.records), 'compilation')}: {longest}"]


def _told(cause: BreakReason, innermost: bool = False) -> list[str]:
    remedy = [f"What to do: {cause.remedy}"] if cause.remedy else []
    stack = cause.user_stack[-1:] if innermost else cause.user_stack
    return [f"Reason: {cause.reason}", *remedy, "User Stack:", *(f"  {place}" for place in stack)]


def _tally(names: Iterable[str]) -> str:
    """`linear 6, add 4, ...`: the most frequent first."""
    found = Counter(names).most_common()
    more = f", and {_count(len(found) - MOST_NAMES, 'other kind')}" if len(found) > MOST_NAMES else ""
    return ", ".join(f"{name} {count}" for name, count in found[:MOST_NAMES]) + more if found else "none"


def _count(number: int, of: str) -> str:
    return f"{number} {of}" + ("" if number == 1 else "s")


def _name(target: Any) -> str:
    return getattr(target, "__name__", str(target))


def _indented(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def operators(graph: torch.fx.GraphModule) -> list:
    """The functions that the graph calls. Methods of tensors are not counted, as in PyTorch's documents."""
    return [n.target for n in graph.graph.nodes if n.op == "call_function"]


def computes(graph: torch.fx.GraphModule) -> bool:
    return any(n.op.startswith("call") for n in graph.graph.nodes)


def guard_lines(guard: Any) -> list[str]:
    name = "process-wide state" if guard.source is None else guard.source.name()
    return [
        f"Name: {name!r}",
        f"Create Function: {guard.kind.name}",
        f"Expected: {in_words(guard.payload, 200)}",
        f"User Line: {guard.user_line}",
    ]


def breaks_of(records: Iterable[CompileRecord]) -> Iterator[Break]:
    """Why graphs ended, and why there are none, in the order in which that was found."""
    for record in records:
        yield from [record.failure] if record.failure is not None else ()
        yield from getattr(record.captured, "breaks", ())


def explain_records(records: Sequence[CompileRecord]) -> ExplainOutput:
    """What the compilations of one run amount to."""
    captured = [r.captured for r in records if r.captured is not None]
    reasons = [
        BreakReason(str(b), tuple(traceback.FrameSummary(p.filename, p.line, p.function) for p in b.stack), b.remedy)
        for b in breaks_of(records)
    ]
    guards = tuple(g for one in captured for g in one.guards)
    graphs = tuple(c.graph for c in captured if computes(c.graph) and not (c.breaks and tosses(c.graph.graph)))
    return ExplainOutput(graphs, tuple(reasons), guards, tuple(records), tuple(r.sizes for r in records if r.sizes))
