"""Run the workers: one fresh process a measurement, with caches that are empty where a cold start is measured."""

from __future__ import annotations

import compileall
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .contenders import EAGER
from .registry import CASES

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 1200
Report = Callable[[str], None]


@dataclass
class Result:
    """What was measured of one case; each mapping goes from a contender's name to its figure."""

    case: str
    cold: dict[str, float] = field(default_factory=dict)
    cold_processor: dict[str, float] = field(default_factory=dict)
    steady: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)  # contender, measurement: reason

    @property
    def title(self) -> str:
        return CASES[self.case].title


class WorkerFailed(Exception):
    """A child process ended with an error, or not in time; the text is the last line that it printed."""


def run_case(
    name: str, contenders: Iterable[str], parts: Iterable[str], repeats: int = 1, report: Report = lambda text: None
) -> Result:
    """Measure one case. What fails is recorded under the contender's name and the rest goes on."""
    result, names = Result(name), [c for c in contenders if c != EAGER.name]
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        if "cold" in parts:
            for contender in (EAGER.name, *names):
                report(f"{result.title}: cold start, {contender}")
                _cold(result, contender, Path(caches), repeats)
        working = [EAGER.name, *(n for n in names if n not in result.failures)]
        if "steady" in parts:
            report(f"{result.title}: steady state, {', '.join(working)}")
            _steady(result, working, Path(caches))
        if "memory" in parts:
            for contender in working:
                report(f"{result.title}: memory, {contender}")
                with _recording(result, contender, "memory"):
                    measured = worker("memory", name, [contender], Path(caches, contender, "0"))
                    result.memory[contender] = measured["bytes"]
    return result


def _cold(result: Result, contender: str, caches: Path, repeats: int) -> None:
    with _recording(result, contender, "cold start"):
        runs = [worker("cold", result.case, [contender], caches / contender / str(i)) for i in range(repeats)]
        result.cold[contender] = median(run["wall"] for run in runs)
        result.cold_processor[contender] = median(run["processor"] for run in runs)


def _steady(result: Result, names: list[str], caches: Path) -> None:
    """All together if they all work; otherwise each beside eager, to keep the figures of those that do."""
    try:
        result.steady = worker("steady", result.case, names, caches / names[-1] / "0")
    except WorkerFailed:
        for contender in names[1:]:
            with _recording(result, contender, "steady state"):
                result.steady |= worker("steady", result.case, [names[0], contender], caches / contender / "0")


class _recording:
    """Note a worker's failure in the result instead of ending the run."""

    def __init__(self, result: Result, contender: str, part: str) -> None:
        self.result, self.contender, self.part = result, contender, part

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, WorkerFailed):
            self.result.failures.setdefault(self.contender, {})[self.part] = str(error)
            return True
        return False


def worker(
    part: str, case: str, names: list[str], caches: Path, module: str = "benchmarks.worker"
) -> dict[str, Any]:
    """Run one measurement in a fresh process whose compilers keep their files in `caches`."""
    as_installed()
    caches.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "DOVETAIL_CACHE_DIR": str(caches / "dovetail"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", module, part, case, *names],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise WorkerFailed(f"took longer than {TIMEOUT} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise WorkerFailed(lines[-1].strip() if lines else f"exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def as_installed() -> None:
    """Give every file of the package its bytecode, as an installer does: a cold start is not the first one ever."""
    compileall.compile_dir(ROOT / "dovetail", quiet=1)
