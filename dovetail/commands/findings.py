"""What the runs of `dovetail doctor` amount to, and the screen that says so."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dovetail.diagnostics.values import TOLERANCE, differs, off

#: Which stage a run adds to the one before it.
STAGES = {
    "capture": "capture",
    "capture+gradients": "the graphs of PyTorch's operators and their gradients",
    "as written": "the backend: fusion or generated code",
    "dynamic=True": "sizes that may change",
    "dynamic=False": "sizes as constants",
}
MOST = 5  # causes of each kind that are shown


@dataclass
class Run:
    """One run as `rung.py` has written it down."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    code: int = 0
    failure: str = ""
    causes: list[dict[str, Any]] = field(default_factory=list)
    compilations: list[dict[str, Any]] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    memory: float = 0.0
    before: float = 0.0

    @staticmethod
    def load(path: Path) -> Run:
        return Run(**torch.load(path, weights_only=True))

    def seconds(self) -> tuple[float, float]:
        """Of the first calls of all functions together, and the sum of the functions' median later calls."""
        by_name: dict[str, list[float]] = {}
        for call in self.calls:
            by_name.setdefault(call["name"], []).append(call["seconds"])
        later = [statistics.median(times[len(times) // 2 :]) for times in by_name.values() if len(times) > 1]
        return sum(times[0] for times in by_name.values()), sum(later)


def crashed(why: str) -> Run:
    return Run(code=1, failure=why)


def difference(eager: Run, again: Run | None, run: Run) -> str:
    """What differs first from eager mode by more than rounding; empty if nothing does."""
    if len(eager.calls) != len(run.calls):
        return f"{len(run.calls)} calls instead of {len(eager.calls)}"
    for k, (want, got) in enumerate(zip(eager.calls, run.calls, strict=True)):
        twin = again.calls[k] if again is not None and k < len(again.calls) else None
        words = _call(want, got, twin, k)
        if words:
            return f"call {k + 1}, of {want['name']}: {words}"
    noise = again.gradients if again is not None else []
    words = _tensors(eager.gradients, run.gradients, noise, None, len(run.calls))
    return f"gradients at the end: {words}" if words else ""


def _call(want: dict[str, Any], got: dict[str, Any], twin: dict[str, Any] | None, before: int) -> str:
    if want["error"] != got["error"]:
        return f"raises {got['error'] or 'nothing'} instead of {want['error'] or 'nothing'}"
    noise, exact = (twin["results"], twin["exact"]) if twin is not None else ([], None)
    return _tensors(want["results"], got["results"], noise, exact, before)


def _tensors(
    want: Sequence[torch.Tensor], got: Sequence[torch.Tensor], again: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None, before: int,
) -> str:  # fmt: skip
    """`before` calls came before, whose rounding may have grown since; `again` is eager's second run."""

    def allowed(k: int) -> float:
        grown = TOLERANCE.get(want[k].dtype, 1e-3) * min(1 + before, 10)
        return max(grown, 3 * off(want[k], again[k])) if len(again) == len(want) else grown

    return differs(want, got, exact, allowed)


# ---------------------------------------------------------------- the screen


def screen(console: Console, runs: Mapping[str, Run]) -> int:
    """Print it; 1 if a compiled run is wrong or fails where eager mode does not."""
    eager, again = runs["eager"], runs.get("eager again")
    if eager.failure:
        console.print(f"[red]The program fails without compiling: {escape(eager.failure)}")
        return 1
    if not eager.calls:
        console.print("The program calls nothing that dovetail.compile has made: nothing to compare.")
        return 0
    wrong = {way: run.failure or difference(eager, again, run) for way, run in runs.items() if way in STAGES}
    console.print(table(runs, wrong))
    for line in verdict(wrong, eager, again):
        console.print(line, highlight=False, soft_wrap=True)
    for title, lines in causes(runs["as written"]).items():
        console.print(f"\n[bold]{title}[/bold]")
        for line in lines:
            console.print(escape(line), highlight=False, soft_wrap=True)
    return int(any(wrong.values()))


def table(runs: Mapping[str, Run], wrong: Mapping[str, str]) -> Table:
    made = Table(box=None, pad_edge=False)
    made.add_column("", no_wrap=True)
    for name in ("right", "builds", "breaks", "seconds", "first", "later", "MiB"):
        made.add_column(name, justify="right", no_wrap=True)
    _, plain = runs["eager"].seconds()
    for way, run in runs.items():
        if way not in ("eager", *STAGES):
            continue
        first, later = run.seconds()
        ratio = f" ({later / plain:.2f}x)" if way != "eager" and plain else ""
        made.add_row(
            way, "" if way == "eager" else "[red]no" if wrong[way] else "yes",
            str(len(run.compilations)), str(sum(c["count"] for c in run.causes)),
            f"{sum(c['seconds'] for c in run.compilations):.1f}", f"{first:.2f}", f"{later * 1e3:.2f} ms{ratio}",
            f"{run.memory - run.before:.0f}",
        )  # fmt: skip
    return made


def verdict(wrong: Mapping[str, str], eager: Run, again: Run | None) -> Iterator[str]:
    yield ""
    for way, words in wrong.items():
        if words:
            yield f"[red]{way}: {escape(words)}"
    first = next((way for way, words in wrong.items() if words), None)
    if first is None:
        yield f"[green]Right in every run: {len(eager.calls)} calls equal eager's within rounding."
    elif all(words for way, words in list(wrong.items())[list(wrong).index(first) :]):
        yield f"What is wrong comes from {STAGES[first]}."
    if again is not None and (words := difference(eager, None, again)):
        yield f"[yellow]Eager mode itself gives other results the second time: {escape(words)}"


def causes(run: Run) -> dict[str, list[str]]:
    """What keeps the program from being faster, each with what to do; kinds without any are left out."""
    breaks = [
        f"{c['count']:4}x  [{c['code']}] {c['reason']}\n{c['place']}\n       What to do: {c['remedy']}"
        for c in run.causes
    ]  # fmt: skip
    anew = [c for c in run.compilations if c["reason"]]
    again = Counter((c["function"], c["place"], c["reason"].split(" (actual")[0]) for c in anew)
    recompiled = [f"{n:4}x  {f} ({place}): {reason}" for (f, place, reason), n in again.most_common()]
    found = {
        "Graph breaks, the most frequent first": breaks,
        "Recompilations": recompiled,
        "Not compiled": [f"       {words}" for words in dict.fromkeys(run.warned)],
    }
    return {title: _most(lines) for title, lines in found.items() if lines}


def _most(lines: list[str]) -> list[str]:
    return lines[:MOST] + ([f"  and {len(lines) - MOST} more"] if len(lines) > MOST else [])
