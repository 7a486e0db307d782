"""The child process: `python -m benchmarks.warm.worker PART CASE CONTENDER DEVICE` prints one line of JSON.

start     seconds of the compiler's import and of each of the first calls, and what a call takes after them
phases    the same, with the stages of each compilation
profile   the functions that took longest in the first call, as text
"""

from __future__ import annotations

import cProfile
import importlib
import io
import json
import pstats
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from ..contenders import CONTENDERS, DOVETAIL, PEER
from . import programs

#: An optimizer's first step makes its state and the second one uses it; a CUDA graph is recorded in a second call.
FIRST = 4
STEADY = 5
SHOWN = 60
IMPORTS = {DOVETAIL.name: "dovetail", PEER.name: "torch._dynamo"}


def start(case: str, contender: str, device: str) -> dict[str, Any]:
    make, there = _set_up(case, device)
    imported = _seconds(lambda: importlib.import_module(IMPORTS.get(contender, "torch")))
    call = make(CONTENDERS[contender])
    first = [_seconds(lambda: _finished(call, there)) for _ in range(FIRST)]
    steady = median(_seconds(lambda: _finished(call, there)) for _ in range(STEADY))
    return {"import": imported, "calls": first, "steady": steady}


def phases(case: str, contender: str, device: str) -> dict[str, Any]:
    found = start(case, contender, device)
    records = importlib.import_module("dovetail.diagnostics.times").RECORDS.all()
    stages = [[(s.name, s.depth, s.seconds) for s in record.stages] for record in records]
    return found | {"compilations": [[r.function, each] for r, each in zip(records, stages, strict=True)]}


def profile(case: str, contender: str, device: str) -> dict[str, Any]:
    make, there = _set_up(case, device)
    importlib.import_module(IMPORTS[contender])
    call, profiler = make(CONTENDERS[contender]), cProfile.Profile()
    profiler.runcall(_finished, call, there)
    texts = []
    for order in ("cumulative", "tottime"):
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).strip_dirs().sort_stats(order).print_stats(SHOWN)
        texts.append(text.getvalue())
    return {"text": "\n".join(texts)}


def _set_up(case: str, device: str) -> tuple[Callable[..., programs.Call], torch.device]:
    """Everything but the compiler is there: model and inputs, on a device that works."""
    there = torch.device(device)
    make = programs.ready(case, there)
    _synchronize(there)
    return make, there


def _finished(call: programs.Call, device: torch.device) -> None:
    call()
    _synchronize(device)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


PARTS = {"start": start, "phases": phases, "profile": profile}


def main() -> None:
    part, case, contender, device = sys.argv[1:]
    print(json.dumps(PARTS[part](case, contender, device)), flush=True)


if __name__ == "__main__":
    main()
