"""Whole models and training steps.

Each program (`cases.py`) runs eagerly, compiled by Dovetail and, with `--peer`, by torch.compile in its default mode
and with `mode="reduce-overhead"`, each time in a fresh process with empty caches, with the same weights and inputs.
Times are medians of single calls between CUDA events, in milliseconds. Cold is the import of the compiler and the first
two calls, in seconds. Memory is what the process holds of the device through PyTorch, the pools of CUDA graphs and free
blocks included, in MiB: at most during the first two calls, and after the measured ones. The error is the largest
difference from eager's result, of a million elements.

With `--together N` so many processes compile at a time, which makes cold starts longer; each then waits for its turn to
be measured.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import queue
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import numpy as np
import torch
from rich.table import Table

from .cases import CASES, Program

#: Figures, and some of the first result.
Outcome = tuple[dict[str, float], Any]

CONTENDERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda fn: fn,
    "Dovetail": lambda fn: importlib.import_module("dovetail").compile(fn),
    "torch.compile": torch.compile,
    "reduce-overhead": lambda fn: torch.compile(fn, mode="reduce-overhead"),
}


def median(program: Program, calls: int = 30) -> float:
    """Milliseconds of one call."""
    for _ in range(5):
        program()
    times = []
    for _ in range(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        program()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def held() -> float:
    """MiB that this process holds of the device through PyTorch."""
    return torch.cuda.memory_reserved() / 2**20


def measure(
    cases: list[str], names: list[str], together: int = 1, kernels: Path | None = None
) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """Every contender on each program, program by program; what fails has no figures."""
    pairs = [(case, name) for case in cases for name in names]
    found: dict[tuple[str, str], Outcome] = {}
    done = 0
    for begin in range(0, len(pairs), together):
        found |= _apart(pairs[begin : begin + together], kernels)
        whole = min(begin + together, len(pairs)) // len(names)
        for case in cases[done:whole]:
            yield case, _compared({n: found[case, n] for n in names if (case, n) in found})
        done = whole


def _compared(outcomes: dict[str, Outcome]) -> dict[str, dict[str, float]]:
    """With the difference from the first, which is eager's."""
    firsts = [first for _, first in outcomes.values()]
    return {n: figures | {"error": float(np.abs(first - firsts[0]).max())} for n, (figures, first) in outcomes.items()}


def _apart(pairs: list[tuple[str, str]], kernels: Path | None) -> dict[tuple[str, str], Outcome]:
    """Figures and first results, each from a process that has imported PyTorch and nothing else, and has no caches."""
    context = multiprocessing.get_context("fork")  # this process must not touch the device, nor start OpenMP's threads
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        answers, compiled, turn = context.Queue(), context.Barrier(len(pairs)), context.Lock()
        children = [
            context.Process(target=_measured, args=(*pair, f"{caches}/{k}", kernels, answers, compiled, turn))
            for k, pair in enumerate(pairs)
        ]
        for child in children:
            child.start()
        found: dict[tuple[str, str], Outcome] = {}
        while any(child.is_alive() for child in children) or not answers.empty():
            if any(child.exitcode for child in children):
                compiled.abort()
            with contextlib.suppress(queue.Empty):
                pair, outcome = answers.get(timeout=0.05)
                found[pair] = outcome
    for pair, child in zip(pairs, children, strict=True):
        if child.exitcode:
            print(f"{', '.join(pair)}: the process ended with {child.exitcode}", file=sys.stderr, flush=True)
    return found


def _measured(
    case: str, name: str, caches: str, kernels: Path | None, answers: Any, compiled: Any, turn: Any
) -> None:
    for variable in ("DOVETAIL_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[variable] = f"{caches}/{variable}"
    torch.manual_seed(0)
    target, make = CASES[case]()
    torch.cuda.synchronize()
    start = time.perf_counter()
    program = make(CONTENDERS[name](target) if target is not None else CONTENDERS[name])
    first = program().float().cpu()
    program()
    torch.cuda.synchronize()
    cold, at_first = time.perf_counter() - start, torch.cuda.max_memory_reserved() / 2**20
    with contextlib.suppress(BrokenBarrierError):
        compiled.wait()
    with turn:
        figures = {"ms": median(program), "cold": cold, "first": at_first, "held": held()}
        if kernels is not None:
            _write_kernels(program, kernels / re.sub("[/, ]+", "-", f"{case}, {name}.txt"))
    some = first.detach().flatten()[:: max(1, first.numel() // 10**6)].numpy()
    answers.put(((case, name), (figures, some)))


def _write_kernels(program: Program, path: Path, calls: int = 3) -> None:
    """The kernels of a few calls, with their share of the device's time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            program()
        torch.cuda.synchronize()
    path.parent.mkdir(parents=True, exist_ok=True)
    averages = profile.key_averages()
    path.write_text(averages.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=90))


def cell(figures: dict[str, float]) -> str:
    return f"{figures['ms']:.3f} ({figures['cold']:.1f}, {figures['first']:.0f}, {figures['held']:.0f})"


def table(results: dict[str, dict[str, dict[str, float]]], names: list[str]) -> Table:
    columns = (f"{name}: ms (cold s, MiB at first, held)" for name in names)
    made = Table("program", *columns, "largest difference from eager")
    for case, row in results.items():
        cells = [cell(row[n]) if n in row else "failed" for n in names]
        made.add_row(case, *cells, f"{row['Dovetail']['error']:.1e}" if "Dovetail" in row else "")
    return made
