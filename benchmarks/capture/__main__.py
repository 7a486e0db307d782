"""`make bench-capture`: is every model one graph and equal to eager? How long does capture take beside torch.compile?

python -m benchmarks.capture [--only NAME ...] [--parts checks warm cold] [--repeats N] [--json FILE]

Every measurement runs in a process of its own. Capture is timed with the backend `eager`, which runs graphs as they
are. Exit status 1 if a model crashed or gave another result than eager.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..session import describe
from .architectures import CASES
from .report import Result, summary, table
from .worker import CONTENDERS

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("checks", "warm", "cold")


def main() -> int:
    options = _arguments()
    names, results = options.only or list(CASES), []
    servers = {part: Server(part) for part in options.parts}
    with _progress() as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            results.append(run_case(name, servers, options.repeats))
            _write(options.json, results)
            progress.advance(task)
    console = Console(width=190)
    console.print(table(results))
    for line in [*summary(results), describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if any(r.crashed or r.wrong for r in results) else 0


def run_case(name: str, servers: dict[str, Server], repeats: int) -> Result:
    """Everything about one model; times are medians over fresh processes."""
    result = Result(name, CASES[name].kind)
    if "checks" in servers:
        result.checks = servers["checks"].ask(name)
    if "warm" in servers:
        result.warm = _medians([servers["warm"].ask(name) for _ in range(repeats)])
    if "cold" in servers:
        runs = [[servers["cold"].ask(name, contender) for contender in CONTENDERS] for _ in range(repeats)]
        result.cold = _medians([ours | peer for ours, peer in runs])
    return result


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [run for run in runs if "error" in run]
    return failed[0] if failed else {key: median(run[key] for run in runs) for key in runs[0]}


class Server:
    """The process that measures one part; it starts with its first question."""

    def __init__(self, part: str) -> None:
        self.command = [sys.executable, "-W", "ignore", "-m", "benchmarks.capture.server", part]

    @functools.cached_property
    def process(self) -> subprocess.Popen[str]:
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(
            self.command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def ask(self, *words: str) -> dict[str, Any]:
        """What was measured, or {"error": why not}."""
        asking, answering = self.process.stdin, self.process.stdout
        assert asking is not None and answering is not None
        asking.write(" ".join(words) + "\n")
        asking.flush()
        return json.loads(answering.readline() or '{"error": "the measuring process ended"}')


def _progress() -> Progress:
    columns = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _write(path: Path | None, results: list[Result]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {"session": describe(), "results": [asdict(r) for r in results]}
        path.write_text(json.dumps(figures, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(CASES), metavar="NAME", help="these models")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="these measurements")
    parser.add_argument("--repeats", type=int, default=1, help="processes for each time; the median counts")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
