"""The child process: `python -m benchmarks.worker PART CASE CONTENDER...` prints one line of JSON."""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from statistics import median
from typing import Any

import torch

from . import measure
from .contenders import CONTENDERS
from .registry import build


def cold(case: str, names: list[str]) -> dict[str, Any]:
    """One contender's cold start: wall seconds, and processor seconds of this process and its children."""
    fn, inputs = build(case)
    before = processor_seconds()
    wall = measure.cold(CONTENDERS[names[0]], fn, inputs)
    return {"wall": wall, "processor": processor_seconds() - before}


def processor_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def steady(case: str, names: list[str], rounds: int = 25) -> dict[str, Any]:
    """All contenders in one process: milliseconds, speed-up over eager (the first), error, graphs."""
    fn, inputs = build(case)
    compiled = [CONTENDERS[name].compile(fn) for name in names]
    exact = measure.reference(fn, inputs)
    with torch.no_grad():
        errors = [measure.largest_error(measure.outcome(program, inputs), exact) for program in compiled]
        times = measure.interleaved([lambda p=program: p(*inputs) for program in compiled], rounds)
        graphs = [CONTENDERS[name].graphs(measure.forward(fn), inputs) for name in names]
    return {
        name: {
            "ms": median(times[i]) * 1e3,
            "speedup": measure.speedup(times[0], times[i]),
            "error": errors[i],
            "graphs": graphs[i],
        }
        for i, name in enumerate(names)
    }


def memory(case: str, names: list[str]) -> dict[str, Any]:
    """One contender's peak bytes of a warm call, beyond model and inputs."""
    fn, inputs = build(case)
    return {"bytes": measure.step_memory(CONTENDERS[names[0]].compile(fn), inputs)}


def phases(case: str, names: list[str]) -> dict[str, Any]:
    """Where a cold start goes: the import, the first call, and what the compiler says of its own stages."""
    fn, inputs = build(case)
    start = time.perf_counter()
    dovetail = importlib.import_module("dovetail")
    imported = time.perf_counter()
    measure.cold(CONTENDERS["dovetail"], fn, inputs)
    done = time.perf_counter()
    return {"import": imported - start, "first call": done - imported, "stages": str(dovetail.compile_times())}


PARTS = {"cold": cold, "steady": steady, "memory": memory, "phases": phases}


def main() -> None:
    part, case, *names = sys.argv[1:]
    print(json.dumps(PARTS[part](case, names)), flush=True)


if __name__ == "__main__":
    main()
