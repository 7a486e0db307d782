"""The capture benchmark's figures as a table and as a few lines of totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

EQUAL = ("output", "training", "generating")  # checks of equality with eager, bit by bit
ABSENT = "–"


@dataclass
class Result:
    """What was found about one model; see `worker` for the keys."""

    name: str
    kind: str
    checks: dict[str, Any] = field(default_factory=dict)
    warm: dict[str, Any] = field(default_factory=dict)
    cold: dict[str, Any] = field(default_factory=dict)

    @property
    def skipped(self) -> str:
        """Why eager mode itself cannot run the model; "" if it can."""
        return self.checks.get("skipped", "")

    @property
    def crashed(self) -> bool:
        return "error" in self.checks or any("Error:" in self.checks.get(c, "") for c in (*EQUAL, "default"))

    @property
    def wrong(self) -> bool:
        return not self.crashed and any(self.checks.get(c) for c in (*EQUAL, "default"))

    @property
    def whole(self) -> bool:
        return bool(self.checks.get("whole"))

    def ratio(self, part: str) -> float:
        """Our seconds over torch.compile's; NaN where one is missing."""
        times = getattr(self, part)
        return times["ours"] / times["peer"] if times.get("peer") and "ours" in times else math.nan


def table(results: Sequence[Result]) -> Table:
    made = Table(title="Capture", title_justify="left", header_style="bold", pad_edge=False)
    for head in ("model", "kind"):
        made.add_column(head, no_wrap=True)
    heads = (
        "graphs", "=eager", "training", "generating", "default\nbackend", "guards\nus", "warm s", "peer s", "ratio",
        "cold s", "peer s", "ratio", "peer's\ngraphs",
    )  # fmt: skip
    for head in heads:
        made.add_column(head, justify="right")
    made.add_column("what differs, or ends a graph", overflow="fold")
    for result in results:
        made.add_row(*_row(result))
    return made


def _row(result: Result) -> list[str]:
    checks = result.checks
    graphs = str(checks.get("graphs", ABSENT))
    marks = [_mark(checks, name) for name in ("output", "training", "generating", "default")]
    times = [*_times(result, "warm"), *_times(result, "cold"), str(result.warm.get("peer_graphs", ABSENT))]
    guard = f"{checks['guard_us']:.0f}" if "guard_us" in checks else ABSENT
    colour = "green" if result.whole else "yellow"
    return [result.name, result.kind, f"[{colour}]{graphs}[/{colour}]", *marks, guard, *times, escape(remark(result))]


def _mark(checks: dict[str, Any], name: str) -> str:
    if name not in checks:
        return ABSENT
    return "[red]no[/red]" if checks[name] else "[green]yes[/green]"


def _times(result: Result, part: str) -> list[str]:
    found, ratio = getattr(result, part), result.ratio(part)
    seconds = [f"{found[k]:.2f}" if k in found else ABSENT for k in ("ours", "peer")]
    colour = "green" if ratio <= 0.5 else "red"
    return [*seconds, ABSENT if math.isnan(ratio) else f"[{colour}]{ratio:.2f}[/{colour}]"]


def remark(result: Result) -> str:
    """The first thing that is not as it should be."""
    checks = result.checks
    if result.skipped:
        return f"skipped, eager: {result.skipped}"
    for part in (checks, result.warm, result.cold):
        if "error" in part:
            return part["error"]
    for name in (*EQUAL, "default"):
        if checks.get(name):
            return f"{name}: {checks[name]}"
    return (checks.get("breaks") or [""])[0].splitlines()[0] if checks.get("breaks") else ""


def summary(results: Sequence[Result]) -> list[str]:
    checked = [r for r in results if r.checks and not r.skipped]
    skipped = sum(bool(r.skipped) for r in results)
    lines = [f"{skipped} skipped: eager mode cannot run them, or gives something else each time"] if skipped else []
    if checked:
        whole = sum(r.whole for r in checked)
        lines += [
            f"{len(checked)} models: {sum(r.crashed for r in checked)} crashed, {sum(r.wrong for r in checked)} differ "
            f"from eager, {whole} ({whole / len(checked):.0%}) are one graph"
        ]
    for part in ("warm", "cold"):
        ratios = [r.ratio(part) for r in results if not math.isnan(r.ratio(part))]
        if ratios:
            lines.append(_ratios(part, ratios, lambda x: f"{x:.2f}"))
    return lines


def _ratios(part: str, ratios: list[float], show: Callable[[float], str]) -> str:
    process = {"warm": "in a process that has compiled before", "cold": "import included"}[part]
    return (
        f"capture time, {process}: median {show(median(ratios))} of torch.compile's, "
        f"worst {show(max(ratios))}, at most half for {sum(r <= 0.5 for r in ratios)} of {len(ratios)}"
    )
