"""The demo's result as Markdown, put between two marks of a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .collect import Result
from .contenders import CONTENDERS, EAGER
from .session import describe
from .tables import ABSENT, error_ratio, summary

BEGIN, END = "<!-- result: begin -->", "<!-- result: end -->"


def markdown(results: Sequence[Result], contenders: Sequence[str]) -> str:
    """A table with one row a program, the totals, and where the figures were taken."""
    heads = ["program", "eager ms"]
    for name in contenders:
        heads += [f"{CONTENDERS[name].title}: cold start s", "ms", "speed-up", "graphs", "error, x eager's"]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for result in results:
        eager = result.steady.get(EAGER.name)
        cells = [result.title.replace("|", "\\|"), f"{eager['ms']:.3f}" if eager else ABSENT]
        for name in contenders:
            cells += _cells(result, name)
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"* {line}" for line in (*summary(results, contenders), describe())]
    return "\n".join([*lines, "", *notes])


def _cells(result: Result, name: str) -> list[str]:
    steady, cold = result.steady.get(name), result.cold.get(name)
    first = ABSENT if cold is None else f"{cold:.2f}"
    if steady is None:
        return [first, *[ABSENT] * 4]
    error = error_ratio(steady["error"], result.steady[EAGER.name]["error"])
    return [first, f"{steady['ms']:.3f}", f"{steady['speedup']:.2f}x", str(steady["graphs"]), error]


def update(document: Path, text: str) -> None:
    """Replace what stands between the marks. Raises ValueError if the document has none."""
    before, found, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{document} does not contain {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
