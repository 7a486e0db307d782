"""`dovetail report FOLDER -o out.html`: a page of what DOVETAIL_TRACE has recorded, and out.json for Perfetto.

The page is one file without scripts or styles from elsewhere. Texts that are too long for it are cut, with a note of
the file that has the whole.
"""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import click
import jinja2

from dovetail.commands import overview
from dovetail.commands.again import recompilations
from dovetail.commands.paths import Paths, named
from dovetail.commands.recorded import Process, RecordedCompilation, read
from dovetail.diagnostics.trace import VARIABLE
from dovetail.ir.records import dataclass

#: Characters of one line, of one text, and of all texts together, that a page shows.
WIDEST, LONGEST, MOST = 500, 24_000, 1_200_000
#: So many rows of each table, and boxes of the chart.
ROWS, BOXES = 150, 2_500

TITLES = {
    "graph_code": "Captured graph", "aot_graphs": "Graph of PyTorch's operators", "output_code": "Host program",
    "call_code": "Call of the host program", "guards": "Guards", "dynamic": "Sizes that vary", "perf_hints": "Hints",
}  # fmt: skip


@click.command
@click.argument("folder", type=click.Path(path_type=Path), envvar=VARIABLE)
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("dovetail_report.html"),
              show_default=True, help="The page; a trace for Perfetto is written beside it.")  # fmt: skip
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
def command(folder: Path, out: Path, opened: bool) -> None:
    """Make a page of FOLDER, where DOVETAIL_TRACE=FOLDER has recorded a program. By default the one that is set."""
    try:
        report(folder, out)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: open it in a browser\n{out.with_suffix('.json')}: open it in Perfetto or chrome://tracing")
    if opened and not webbrowser.open(out.resolve().as_uri()):
        raise click.ClickException("no browser can be started here")


def report(folder: Path, out: Path) -> None:
    """Write the page, and the same as a trace beside it, ending in .json.

    Raises FileNotFoundError if nothing is recorded in the folder, OSError if the files cannot be written.
    """
    processes = read(folder)
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    shown = contents(processes, folder)
    environment.filters.update(bytes=in_bytes, seconds=in_seconds, short=shown["paths"].short)
    page = environment.get_template("report.html").render(**shown)
    out.write_text(page, encoding="utf-8")
    out.with_suffix(".json").write_text(json.dumps(chrome_trace(processes)), encoding="utf-8")


def contents(processes: Sequence[Process], folder: Path) -> dict[str, Any]:
    """What the template shows."""
    found = [c for process in processes for c in process.compilations.values()]
    causes, again, eagerly = overview.breaks(found), recompilations(found), overview.eager(processes)
    kernels, lines = overview.kernels(found)
    return {
        "folder": folder, "processes": processes, "breaks": causes, "recompilations": again, "eager": eagerly,
        "first": _first(causes, again), "kernels": kernels, "lines": lines, "stages": overview.stages(found),
        "compilations": sorted(found, key=lambda c: -c.seconds), "seconds": sum(c.seconds for c in found),
        "unfinished": [c for c in found if c.outcome == "unfinished"],
        "failed": sum(c.outcome.startswith("failed") for c in found),
        "ranks": "Ranks" if any(p.about.get("rank") is not None for p in processes) else "Processes",
        "shared": overview.side_by_side(processes) if len(processes) > 1 else [],
        "chart": Chart(processes), "paths": Paths(named(found)), "texts": Texts(), "titles": TITLES, "rows": ROWS,
        "damaged": sum(process.damaged for process in processes),
    }  # fmt: skip


def _first(causes: Sequence[overview.Cause], again: Sequence[overview.Cause]) -> list[tuple[str, overview.Cause]]:
    """What to mend first: functions that run eagerly, then what has cost most."""
    both = [(f"break{k}", cause) for k, cause in enumerate(causes)] + [(f"again{k}", c) for k, c in enumerate(again)]
    found = [item for item in both if not item[1].idle]
    return sorted(found, key=lambda item: (not item[1].verdict, -item[1].seconds))[:8]


@dataclass
class Texts:
    """Hands out texts for the page until there is no room left. What is shown already is referred to."""

    left: int = MOST
    shown: set[str] = field(default_factory=set)

    def of(self, compilation: RecordedCompilation) -> Iterator[tuple[str, str, str]]:
        """For each text of a compilation that the page may show: its title, digest and text."""
        parts = [told["part"] for told, _ in compilation.programs]
        alike = len(parts) == sum(kind == "output_code" for kind, _ in compilation.artifacts)
        given = iter(parts if alike else ())
        for kind, digest in compilation.artifacts:
            part = next(given, "") if kind == "output_code" else ""
            if kind in TITLES:
                title = f"{TITLES[kind]}, {part}" if part else TITLES[kind]
                yield title, digest, compilation.process.texts.get(digest, "")

    def is_new(self, digest: str) -> bool:
        new = digest not in self.shown
        self.shown.add(digest)
        return new

    def cut(self, text: str) -> str:
        """As much of it as there is room for. A graph of a whole model begins with a line of all its parameters."""
        lines = (line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in text.split("\n"))
        part = "\n".join(lines)[: max(min(LONGEST, self.left), 0)]
        self.left -= len(part)
        return part


@dataclass(frozen=True)
class Box:
    """A slice of the chart: milliseconds since its begin. `target` is the compilation that it is, or is part of."""

    name: str
    start: float
    length: float
    depth: int
    target: str


class Chart:
    """A lane for each process: its compilations, and below each their stages. Too many: the longest are shown."""

    def __init__(self, processes: Sequence[Process]) -> None:
        begun = [c.began for process in processes for c in process.compilations.values()]
        self.origin = min(begun, default=0.0)
        found = [(k, box) for k, process in enumerate(processes) for box in self._boxes(k, process)]
        kept = sorted(found, key=lambda item: -item[1].length)[:BOXES]
        self.left_out = len(found) - len(kept)
        self.length = max((box.start + box.length for _, box in kept), default=1.0) or 1.0
        self.lanes = [(p, [box for lane, box in kept if lane == k]) for k, p in enumerate(processes)]
        self._hues: dict[str, int] = {}

    def hue(self, stage: str) -> int:
        """Of a color: the same for a stage forward and backward, far from that of other stages."""
        return self._hues.setdefault(stage.rpartition(" ")[2], round(len(self._hues) * 137.5) % 360)

    def _boxes(self, number: int, process: Process) -> Iterator[Box]:
        for compilation in process.compilations.values():
            target = f"c{number}-{compilation.number}"
            yield self._box(compilation.function, compilation.began, compilation.length, 0, target)
            for stage in compilation.stages:
                yield self._box(stage.name, stage.began, stage.seconds, stage.depth + 1, target)

    def _box(self, name: str, began: float, seconds: float, depth: int, target: str) -> Box:
        return Box(name, round((began - self.origin) * 1e3, 3), round(seconds * 1e3, 3), depth, target)


def in_bytes(count: float) -> str:
    """`12.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def in_seconds(seconds: float) -> str:
    """`3.21 s`, `12 ms`."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


# ---------------------------------------------------------------- the same for chrome://tracing and Perfetto


def chrome_trace(processes: Sequence[Process]) -> dict[str, Any]:
    """Compilations with their stages as slices, graph breaks and warnings as instants; microseconds since 1970."""
    return {"traceEvents": [event for number, p in enumerate(processes) for event in _process(number, p)]}


def _process(number: int, process: Process) -> Iterator[dict[str, Any]]:
    title = f"{process.name} on {process.about.get('host', '?')}"
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": title}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
    for compilation in process.compilations.values():
        yield from _compilation(number, compilation)
    for warning in process.warnings:
        yield _instant(number, "warning", warning["time"], {"message": warning["message"], "place": warning["place"]})


def _compilation(number: int, of: RecordedCompilation) -> Iterator[dict[str, Any]]:
    args = {"place": of.place, "entry": of.index, "outcome": of.outcome, "reasons": [r[0] for r in of.reasons if r]}
    yield _slice(number, of.function, of.began, of.length, args)
    for stage in of.stages:
        yield _slice(number, stage.name, stage.began, stage.seconds, {"compilation": of.number})
    for found in of.breaks:
        yield _instant(number, f"graph break [{found['code']}]", found["time"], {"reason": found["reason"]})


def _slice(number: int, name: str, began: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": "compile", "pid": number, "tid": 0, "ts": began * 1e6, "dur": seconds * 1e6,
        "args": args,
    }  # fmt: skip


def _instant(number: int, name: str, at: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "name": name, "cat": "compile", "pid": number, "tid": 0, "ts": at * 1e6, "args": args}
