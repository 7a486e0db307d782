"""`CompileProfiler`: a backend that runs each graph as it is and reports graph breaks and recompilations."""

from __future__ import annotations

from typing import Any

import torch.fx

from dovetail.diagnostics.events import CompileRecord


class CompileProfiler:
    """Run a program for a while under `dovetail.compile(fn, backend=prof)`, then `print(prof.report())`.

    Can be used in a with statement, which adds nothing.
    """

    def __init__(self) -> None:
        self.frame_count = 0
        self.op_count = 0
        self.records: list[CompileRecord] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.frame_count += 1
        self.op_count += sum(n.op.startswith("call") for n in gm.graph.nodes)
        return gm.forward

    def __enter__(self) -> CompileProfiler:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def report(self) -> str:
        """What was seen so far, as text."""
        return "\n".join([
            "Compile profiler report", "=======================",
            f"{self.frame_count} graphs with {self.op_count} operators", "",
            "Graph breaks", "------------", *self._breaks(), "",
            "Recompilation", "-------------", *self._recompilations(),
        ])  # fmt: skip

    def _breaks(self) -> list[str]:
        found: dict[str, int] = {}
        for record in self.records:
            for one in getattr(record.captured, "breaks", ()):
                found[one.text()] = found.get(one.text(), 0) + 1
        if not found:
            return ["No graph breaks."]
        return [f"{count}x {text}" for text, count in sorted(found.items(), key=lambda item: -item[1])]

    def _recompilations(self) -> list[str]:
        lines = [
            f"{record.function} ({record.place}): {failed[0]}"
            for record in self.records
            for failed in record.reasons[:1]
        ]
        return lines or ["No recompilation."]
