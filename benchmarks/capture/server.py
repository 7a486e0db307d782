"""`python -m benchmarks.capture.server PART DEVICE`: reads lines "CASE [CONTENDER]", answers each with a line of JSON.

Importing PyTorch and transformers takes far longer than capturing a small model. One process does it, and every
measurement runs in a fork of it: in a fresh process for all that the compilers keep, without the wait.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any

import torch

from .architectures import AnyCase, case
from .worker import PARTS, warm_up

TIMEOUT = 600  # seconds for one measurement
MODULES = "modeling_utils generation models.llama.modeling_llama models.t5.modeling_t5 models.vit.modeling_vit".split()
THREADS = torch.get_num_threads()

#: Which contenders the process has used before a measurement begins.
USED = {"checks": ("ours",), "warm": ("ours", "peer"), "cold": ()}


def isolated(part: str, case: AnyCase, names: list[str]) -> dict[str, Any]:
    """The measurement, or {"error": what happened}."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(part, case, names, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(TIMEOUT) else {"error": f"no result after {TIMEOUT} s"}
    except EOFError:
        child.join()
        return {"error": f"the process ended with status {child.exitcode}"}
    finally:
        child.kill()
        child.join()


def _measure(part: str, case: AnyCase, names: list[str], answer: Connection) -> None:
    torch.set_num_threads(THREADS)
    try:
        if case.device != "cpu":  # a process that has used a GPU cannot be forked
            warm_up(USED[part])
        answer.send(PARTS[part](case, *names))
    except Exception as error:  # goes into the report
        answer.send({"error": f"{type(error).__name__}: {error}"[:500]})


def main() -> None:
    warnings.simplefilter("ignore")
    part, device = sys.argv[1:]
    torch.backends.cudnn.allow_tf32 = False  # results are compared at float32's accuracy
    torch.backends.cuda.enable_flash_sdp(False)  # which kernel of attention PyTorch takes depends on the mask that
    torch.backends.cuda.enable_mem_efficient_sdp(False)  # libraries make, and so do the numbers that dropout draws
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork: there must be none yet
    for name in MODULES:
        importlib.import_module(f"transformers.{name}")
    if device == "cpu":
        warm_up(USED[part])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # models and libraries print, too
    for line in sys.stdin:
        name, *names = line.split()
        print(json.dumps(isolated(part, case(name, device), names)), file=answers, flush=True)


if __name__ == "__main__":
    main()
