"""The whole operator database: `python -m tests.opdb.sweep [--out results.jsonl] [--samples N] [--only REGEX]`.

Forward: every operator with a float, an integer and a half type. With `--backward`: every differentiable one, its
outputs and gradients, with real, half and complex types. Each entry's result is a line of the output file as soon as
it is known; entries already there are not run again (`--again` runs the failed ones). At the end a summary is printed
and written beside it, as JSON and as a list of failures by cause. With OPDB_DEVICE=cuda the samples lie on a
GPU.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.opdb import gradients
from tests.opdb.entries import entries
from tests.opdb.workers import BACKWARD, FORWARD, Result, sweep


def main() -> int:
    """1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backward", action="store_true", help="outputs and gradients of differentiable operators")
    parser.add_argument("--out", type=Path, default=None, help="opdb_results.jsonl or opdb_backward.jsonl")
    parser.add_argument("--samples", type=int, default=None, help="at most this many samples of an entry (all)")
    parser.add_argument("--only", default="", help="a regular expression for entries' names")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="run failed entries again")
    options = parser.parse_args()

    everything, direction, out = (
        (gradients.entries(), BACKWARD, "opdb_backward.jsonl") if options.backward
        else (entries(), FORWARD, "opdb_results.jsonl")
    )  # fmt: skip
    options.out = options.out or Path(out)
    known = read(options.out)
    if options.again:
        known = {name: r for name, r in known.items() if not r.failures}
        write(options.out, known)
    todo = [k for k, e in enumerate(everything) if e.name not in known and re.search(options.only, e.name)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, options.out.open("a") as file:
        task = progress.add_task("0 failed", total=len(todo))
        failed = 0
        for result in sweep(everything, todo, options.samples, options.workers, direction):
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            known[result.entry] = result
            failed += bool(result.failures)
            progress.update(task, advance=1, description=f"{failed} failed, last {result.entry}")
    report(known, options.out)
    return int(any(r.failures for r in known.values()))


def read(path: Path) -> dict[str, Result]:
    """Results by entry; the last line of an entry counts."""
    if not path.exists():
        return {}
    return {r.entry: r for r in (Result(**json.loads(line)) for line in path.read_text().splitlines())}


def write(path: Path, results: dict[str, Result]) -> None:
    path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in results.values()))


def report(results: dict[str, Result], out: Path) -> None:
    """Print and write the summary."""
    tried = [r for r in results.values() if r.cases]
    right = [r for r in tried if not r.failures]
    whole = [r for r in right if not r.breaks]
    summary = {
        "entries": len(tried), "right": len(right), "right_share": share(right, tried),
        "one_graph": len(whole), "one_graph_share": share(whole, tried), "failed": len(tried) - len(right),
        "cases": sum(r.cases for r in tried), "cases_right": sum(r.passed + len(r.breaks) for r in tried),
    }
    out.with_suffix(".summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    out.with_suffix(".failures.md").write_text(failures_text(tried))
    if summary["failed"]:
        Console().print(failures_table(tried))
    print(json.dumps(summary, indent=2))


def share(part: list[Result], whole: list[Result]) -> float:
    return round(len(part) / max(len(whole), 1), 4)


def causes(results: list[Result]) -> list[tuple[str, str, list[str]]]:
    """(stage, message with its numbers and names blanked, failures); of a stage the most frequent first."""
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for result in results:
        for failure in result.failures:
            stage, _, _ = failure["stage"].partition(":")
            where = failure["stage"] if failure["stage"].startswith(stage + ":") else failure["message"]
            found[stage, cause(where)].append(f"{result.entry} {failure['case']}: {failure['message']}")
    return [(*key, lines) for key, lines in sorted(found.items(), key=lambda item: (item[0][0], -len(item[1])))]


def entries_of(failures: list[str]) -> list[str]:
    return sorted({line.partition(" ")[0] for line in failures})


def failures_text(results: list[Result]) -> str:
    lines = ["# Failures by cause\n"]
    for stage, text, found in causes(results):
        names = entries_of(found)
        lines.append(f"## {stage}: {text}\n{len(found)} cases of {len(names)} entries: {', '.join(names[:40])}\n")
        lines += [f"- {line}" for line in found[:3]] + [""]
    return "\n".join(lines)


def failures_table(results: list[Result]) -> Table:
    table = Table("stage", "cause", "cases", "entries", title="Failures by cause")
    for stage, text, found in causes(results):
        names = entries_of(found)
        table.add_row(stage, escape(text), str(len(found)), escape(", ".join(names[:4])) + (" …" if names[4:] else ""))
    return table


def cause(message: str) -> str:
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?|'[^']*'|\[.*?\]|\b(inf|nan)\b", "#", message)[:140]


if __name__ == "__main__":
    raise SystemExit(main())
