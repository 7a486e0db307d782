"""Random training programs of several ranks, compiled and in eager mode.

    python -m tests.distributed.draws [--runs 100] [--first 0]

Each is a program of `drawn.py` in processes that talk over gloo: losses and parameters are eager's, on every rank.
What eager mode refuses counts apart.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch

import dovetail
from benchmarks.distributed.processes import Ranks
from tests.distributed import drawn

#: Seconds that a rank waits for the others in a collective, and for all of a run.
PATIENCE, BOUND = 30, 120


REFUSED = "eager mode raises"


def problem(seed: int) -> str:
    """What is wrong with a program; nothing if all is well."""
    plan = drawn.Plan.drawn(seed)
    with tempfile.TemporaryDirectory(prefix="draws") as name:
        started = Ranks(plan.ranks, Path(name), patience=PATIENCE, limit=BOUND, alone=PATIENCE)
        ended = started.run(functools.partial(_run, plan=plan, folder=Path(name)))
    if all(each.code == 0 for each in ended):
        return ""
    if all(REFUSED in each.told for each in ended):
        return REFUSED
    told = [f"rank {rank} ended with {each.code}: {each.told[-3000:]}" for rank, each in enumerate(ended) if each.code]
    return "\n".join((f"seed {seed}: {plan}", *told))


def _run(device: torch.device, plan: drawn.Plan, folder: Path) -> None:
    os.environ["DOVETAIL_CACHE_DIR"] = str(folder / "kept")
    dovetail.config.strict = True
    warnings.simplefilter("ignore")
    try:
        expected = drawn.trained(plan, False)
    except Exception as error:
        raise AssertionError(REFUSED) from error
    with dovetail.config.patch(fewer_collectives="fewer" in plan.choices):
        rtol, atol = (1e-7, 1e-8) if plan.precise else (1e-4, 1e-5)
        torch.testing.assert_close(drawn.trained(plan, True), expected, rtol=rtol, atol=atol)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    told = [problem(seed) for seed in range(options.first, options.first + options.runs)]
    wrong = [text for text in told if text not in ("", REFUSED)]
    print(*wrong, f"{options.runs} programs, {len(wrong)} wrong; of {told.count(REFUSED)} {REFUSED}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
