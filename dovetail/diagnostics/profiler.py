"""`CompileProfiler`: a backend that runs each graph as it is and reports graph breaks and recompilations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch.fx

from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.explain import ExplainOutput, breaks_of, explain_records


class CompileProfiler:
    """Run a program for a while under `dovetail.compile(fn, backend=prof)`, then `print(prof.report())`.

    Can be used in a with statement, which adds nothing.
    """

    def __init__(self) -> None:
        self.records: list[CompileRecord] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list) -> Any:
        return gm.forward

    def __enter__(self) -> CompileProfiler:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    @property
    def explanation(self) -> ExplainOutput:
        """The same as data, as `explain` gives it for one call."""
        return explain_records(self.records)

    @property
    def frame_count(self) -> int:
        """How many graphs there are."""
        return self.explanation.graph_count

    @property
    def op_count(self) -> int:
        """How many functions they call."""
        return self.explanation.op_count

    def report(self) -> str:
        """What was seen so far, as text."""
        found = self.explanation
        return "\n".join([
            "Compile profiler report", "=======================",
            f"{found.graph_count} graphs with {found.op_count} operators", "",
            "Graph breaks", "------------", *self._breaks(), "",
            "Recompilation", "-------------", *self._recompilations(),
        ])  # fmt: skip

    def _breaks(self) -> Iterator[str]:
        """Each distinct one, the most frequent first."""
        found = Counter(cause.text() for cause in breaks_of(self.records))
        yield from [f"{count}x {text}" for text, count in found.most_common()] or ["No graph breaks."]

    def _recompilations(self) -> list[str]:
        lines = [
            f"{record.function} ({record.place}): {failed[0]}"
            for record in self.records
            for failed in record.reasons[:1]
        ]
        return lines or ["No recompilation."]
