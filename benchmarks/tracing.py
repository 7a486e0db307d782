"""`python -m benchmarks.tracing`: what DOVETAIL_TRACE adds to compiling a GPT-2 of 12 layers.

Pairs of compilations with and without it differ by more than it takes where other processes run as well. So the time is
added up that one compilation spends on making texts and writing events: processor seconds of the thread, against the
rest of the compilation. Kernels come from the cache, so that this counts for more than in a cold start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import dovetail
import dovetail.pipeline  # so that there is what is patched
from benchmarks.models.language import gpt2
from dovetail.diagnostics.events import Events


def inference(compiled: Callable, ids: torch.Tensor) -> None:
    with torch.no_grad():
        compiled(ids)


def training(compiled: Callable, ids: torch.Tensor) -> None:
    compiled(ids, labels=ids)


class Clock:
    """Adds up the time in some methods."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, cls: type, name: str) -> None:
        method = getattr(cls, name)

        def timing(*args: Any) -> Any:
            start = time.thread_time()
            try:
                return method(*args)
            finally:
                self.seconds += time.thread_time() - start

        setattr(cls, name, timing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    clock = Clock()
    clock.timed(Events, "artifact")
    clock.timed(Events, "tell")
    model, ids = gpt2(layers=12).eval(), torch.randint(0, 5000, (2, 16))
    for step in (inference, training):
        shares, rest = [], []
        for number in range(runs + 1):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["DOVETAIL_TRACE"] = folder
                dovetail.reset()
                compiled = dovetail.compile(model)
                clock.seconds, start = 0.0, time.thread_time()
                step(compiled, ids)
                whole = time.thread_time() - start
            if number:  # the first run fills the caches
                rest.append(whole - clock.seconds)
                shares.append(clock.seconds / rest[-1])
        told = f"{statistics.median(shares):.1%} (median of {runs}, {min(shares):.1%} to {max(shares):.1%})"
        print(f"{step.__name__}: {statistics.median(rest):.2f} s, and {told} for the trace")


if __name__ == "__main__":
    main()
