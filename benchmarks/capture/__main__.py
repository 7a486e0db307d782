"""`make bench-capture`: is every model one graph and equal to eager? How long does capture take beside torch.compile?

python -m benchmarks.capture [--only NAME ...] [--parts checks warm cold] [--repeats N] [--json FILE]

Every measurement runs in a fresh process. Capture is timed with the backend `eager`, which runs graphs as they are.
Exit status 1 if a model crashed or gave another result than eager.
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("checks", "warm", "cold")
TIMEOUT = 600


def main() -> int:
    options = _arguments()
    names, results = options.only or list(CASES), []
    with _progress() as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            results.append(run_case(name, options.parts, options.repeats))
            _write(options.json, results)
            progress.advance(task)
    console = Console(width=190)
    console.print(table(results))
    for line in [*summary(results), describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if any(r.crashed or r.wrong for r in results) else 0


def run_case(name: str, parts: list[str], repeats: int) -> Result:
    """Everything about one model; times are medians over fresh processes."""
    result = Result(name, CASES[name].kind)
    if "checks" in parts:
        result.checks = worker("checks", name)
    if "warm" in parts:
        result.warm = _medians([worker("warm", name) for _ in range(repeats)])
    if "cold" in parts:
        runs = [worker("cold", name, c) for _ in range(repeats) for c in ("ours", "peer")]
        result.cold = _medians([a | b for a, b in zip(runs[::2], runs[1::2], strict=True)])
    return result


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [run for run in runs if "error" in run]
    return failed[0] if failed else {key: median(run[key] for run in runs) for key in runs[0]}


def worker(part: str, *arguments: str) -> dict[str, Any]:
    """What the child process printed, or {"error": its last line}."""
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.capture.worker", part, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {TIMEOUT} s"}
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"error": lines[-1].strip() if lines else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


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
