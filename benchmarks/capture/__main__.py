"""`make bench-capture`: is every model one graph and equal to eager? How long does capture take beside torch.compile?

python -m benchmarks.capture [--only NAME ...] [--parts checks warm cold] [--repeats N] [--device cuda] [--json FILE]
python -m benchmarks.capture --drawn 60 --number 7      architectures of the libraries' lists, at random
python -m benchmarks.capture --parts checks --jobs 16 --share 1/2 --seconds 480      many at a time, half of them

Every measurement runs in a process of its own. Capture is timed with the backend `eager`, which runs graphs as they
are. Exit status 1 if a model crashed or gave another result than eager, or time ran out.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..session import describe
from .architectures import CASES, case
from .drawn import draw
from .report import Result, summary, table
from .worker import CONTENDERS

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("checks", "warm", "cold")
#: Of the server; asking for GPUs as PyTorch does by default would keep its forks from using one.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def main() -> int:
    options = _arguments()
    names = _names(options)
    bench = Bench(options, names)
    with _progress() as progress, ThreadPoolExecutor(options.jobs) as workers:
        task = progress.add_task("", total=bench.wanted)
        seen = functools.partial(progress.update, task)
        for done in [workers.submit(bench.work, seen) for _ in range(options.jobs)]:
            done.result()
    console = Console(width=190)
    console.print(table(bench.results))
    for line in [*summary(bench.results), *bench.unfinished(), describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if any(r.crashed or r.wrong for r in bench.results) or bench.unfinished() else 0


def _names(options: argparse.Namespace) -> list[str]:
    names = options.only or (draw(options.number) if options.drawn else list(CASES))
    which, shares = options.share
    return names[which - 1 :: shares]


class Bench:
    """What is measured, by one thread or several, and what has been found so far."""

    def __init__(self, options: argparse.Namespace, names: list[str]) -> None:
        self.options, self.names = options, names
        self.wanted = -(-options.drawn // options.share[1]) or len(names)
        self.results: list[Result] = []
        self.lock = threading.Lock()
        self.waiting = iter(names)
        self.ending = time.monotonic() + options.seconds

    def work(self, seen: Callable[..., None]) -> None:
        """Measures models that nobody else has begun with, in servers of its own."""
        options = self.options
        servers = {part: Server(part, options.device, options.jobs) for part in options.parts}
        for name in self.waiting:
            if not self._missing() or time.monotonic() > self.ending:
                break
            seen(description=name)
            result = run_case(name, servers, options.repeats)
            with self.lock:
                self.results.append(result)
                self.results.sort(key=lambda r: self.names.index(r.name))
                _write(options.json, self.results)
            seen(completed=self.wanted - self._missing())

    def _missing(self) -> int:
        return max(self.wanted - sum(not r.skipped for r in self.results), 0)

    def unfinished(self) -> list[str]:
        """A line that says how many are left, where time ran out."""
        left = min(self._missing(), len(self.names) - len(self.results))
        return [f"{left} not measured: {self.options.seconds:.0f} s were over"] if left else []


def run_case(name: str, servers: dict[str, Server], repeats: int) -> Result:
    """Everything about one model; times are medians over fresh processes."""
    result = Result(name, case(name).kind)
    if "checks" in servers:
        result.checks = servers["checks"].ask(name)
    if result.skipped:
        return result
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

    def __init__(self, part: str, device: str, beside: int = 1) -> None:
        """`beside` such servers share the machine's cores."""
        self.command = [sys.executable, "-W", "ignore", "-m", "benchmarks.capture.server", part, device]
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // beside))} if beside > 1 else {}
        self.environment = os.environ | ENVIRONMENT | threads

    @functools.cached_property
    def process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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


def _share(text: str) -> tuple[int, int]:
    which, shares = map(int, text.split("/"))
    if not 1 <= which <= shares:
        raise ValueError(text)
    return which, shares


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these; hf:NAME and timm:NAME are libraries'")
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT", help="so many drawn ones that run eagerly")
    parser.add_argument("--number", type=int, default=0, help="which ones are drawn")
    parser.add_argument("--device", default="cpu", help="where the models are: cpu or cuda")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="these measurements")
    parser.add_argument("--repeats", type=int, default=1, help="processes for each time; the median counts")
    parser.add_argument("--jobs", type=int, default=1, help="so many models at a time; times mean little then")
    parser.add_argument("--share", type=_share, default=(1, 1), metavar="I/N", help="every Nth model, from the Ith on")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after these no further model is begun")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    unknown = [name for name in options.only or () if ":" not in name and name not in CASES]
    if unknown:
        parser.error(f"no models of these names: {', '.join(unknown)}; known are {', '.join(CASES)}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
