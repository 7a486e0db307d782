"""Results as a table for people, and the one line of totals under it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.table import Table

from .collect import Result
from .contenders import CONTENDERS, DOVETAIL, EAGER, PEER
from .registry import CASES

ABSENT = "–"


def geomean(values: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def main_table(results: Sequence[Result], contenders: Sequence[str]) -> Table:
    """One row a case; eager's time, then a block of columns for each compiler."""
    kind = "Training step (forward, backward, Adam)" if CASES[results[0].case].training else "Inference"
    table = Table(title=f"{kind} on the CPU, float32", title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("program", no_wrap=True)
    table.add_column("eager\nms", justify="right")
    for name in contenders:
        title = CONTENDERS[name].title
        for head in (f"{title}\ncold start s", "\nms", "\nspeed-up", "\ngraphs", "error,\nx eager's"):
            table.add_column(head, justify="right")
    for result in results:
        eager = result.steady.get(EAGER.name)
        cells = [result.title, f"{eager['ms']:.3f}" if eager else ABSENT]
        for name in contenders:
            cells += _cells(result, name)
        table.add_row(*cells)
    return table


def _cells(result: Result, name: str) -> list[str]:
    cold, steady, failed = result.cold.get(name), result.steady.get(name), result.failures.get(name, {})
    first = f"{cold:.2f}" if cold is not None else _absent("cold start" in failed)
    if steady is None:
        return [first, _absent("steady state" in failed), ABSENT, ABSENT, ABSENT]
    colour = "green" if steady["speedup"] >= 1 else "red"
    return [
        first,
        f"{steady['ms']:.3f}",
        f"[{colour}]{steady['speedup']:.2f}x[/{colour}]",
        str(steady["graphs"]),
        error_ratio(steady["error"], result.steady[EAGER.name]["error"]),
    ]


def _absent(failed: bool) -> str:
    return "[red]failed[/red]" if failed else ABSENT


def error_ratio(ours: float, eager: float) -> str:
    """A contender's error as a multiple of eager's; the error itself where eager's is zero."""
    if eager == 0:
        return "exact" if ours == 0 else f"{ours:.1e}"
    return f"{ours / eager:.2f}"


def details_table(results: Sequence[Result], contenders: Sequence[str]) -> Table:
    """Memory of a warm call, and the cold starts side by side with the peer's."""
    table = Table(title="Memory and cold start", title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("program", no_wrap=True)
    for name in (EAGER.name, *contenders):
        table.add_column(f"{CONTENDERS[name].title}\npeak MB", justify="right")
    table.add_column("cold start,\npeer / ours", justify="right")
    for result in results:
        peaks = [result.memory.get(name) for name in (EAGER.name, *contenders)]
        cells = [ABSENT if peak is None else f"{peak / 1e6:.2f}" for peak in peaks]
        table.add_row(result.title, *cells, _ratio(result))
    return table


def _ratio(result: Result) -> str:
    if DOVETAIL.name in result.cold and PEER.name in result.cold:
        return f"{result.cold[PEER.name] / result.cold[DOVETAIL.name]:.1f}"
    return ABSENT


def summary(results: Sequence[Result], contenders: Sequence[str]) -> list[str]:
    """Geometric means over the cases that every contender finished, and what failed."""
    lines = []
    done = [r for r in results if all(name in r.steady for name in contenders)]
    for name in contenders:
        speedups = [r.steady[name]["speedup"] for r in done]
        if speedups:
            lines.append(f"{CONTENDERS[name].title}: {geomean(speedups):.2f}x eager (geometric mean of {len(done)})")
    if DOVETAIL.name in contenders and PEER.name in contenders and done:
        steady = geomean(r.steady[DOVETAIL.name]["speedup"] / r.steady[PEER.name]["speedup"] for r in done)
        cold = geomean(r.cold[PEER.name] / r.cold[DOVETAIL.name] for r in done if PEER.name in r.cold)
        lines.append(f"Dovetail against torch.compile: {steady:.2f}x its steady speed, {cold:.1f}x its cold start")
    for result in results:
        for name, failed in result.failures.items():
            lines += [f"{result.title}: {CONTENDERS[name].title}, {part} failed: {why}" for part, why in failed.items()]
    return lines
