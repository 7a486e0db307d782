"""Faults in one of two ranks: nobody hangs, nothing is wrong, and who fails says so.

    python -m tests.distributed.faults [--runs 200] [--first 0]

Each run is a random program with a fault (`faulty.py`), in two processes that talk over gloo. After a harmless fault
all results are eager's. After a fatal one the rank raises what it raises in eager mode, or is gone, and its peer ends
by itself in a minute: it raises and names that rank, or had no more to wait for. Errors are printed with the rank that
raises them.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path

import torch

import dovetail
from benchmarks.distributed.processes import Ranks
from dovetail.interop import failed_ranks
from tests.distributed import faulty

#: Seconds that a rank waits for the other in a collective, and in which all of a run's processes have to end.
PATIENCE, BOUND = 15, 60
RANKS = 2
_ERRORS = {"raises": "Injected", "wrong index": "Error"}


def problem(seed: int) -> str:
    """What is wrong with a run; nothing if all is well."""
    plan = faulty.Plan.drawn(seed)
    with tempfile.TemporaryDirectory(prefix="faults") as name:
        started = Ranks(RANKS, Path(name), patience=PATIENCE, limit=BOUND, alone=BOUND)
        ended = started.run(functools.partial(_run, plan=plan, folder=Path(name)))
    found = _wrong(plan, [each.code for each in ended], [each.told for each in ended])
    parts = "\n".join(f"rank {rank} ended with {each.code}: {each.told[-3000:]}" for rank, each in enumerate(ended))
    return f"seed {seed}: {found}\n{plan}\n{parts}" if found else ""


def _wrong(plan: faulty.Plan, codes: list[int | None], told: list[str]) -> str:
    if None in codes:
        return f"rank {codes.index(None)} hangs"
    failing, other = plan.where, 1 - plan.where
    if any("differs" in text for text in told):
        return "a wrong result"
    if plan.fault in faulty.HARMLESS:
        return "" if codes == [0, 0] else "a harmless fault did harm"
    if codes[failing] == 0 and plan.fault != "killed in a stage":  # nothing may be left to compile
        return "the fault did not happen"
    if plan.fault in _ERRORS and _ERRORS[plan.fault] not in told[failing].strip().splitlines()[-1]:
        return "the rank raised something else"
    if codes[failing] != 0 and codes[other] not in (0, 1):
        return "the peer did not raise"
    if codes[other] == 1 and _culprit(plan, failing) not in told[other]:
        return "the peer does not say who failed"
    nameless = [rank for rank, code in enumerate(codes) if code == 1 and f"[rank{rank}]" not in told[rank]]
    return f"rank {nameless[0]} raises without its number" if nameless else ""


def _culprit(plan: faulty.Plan, failing: int) -> str:
    return f"rank {failing} raised " if plan.fault in _ERRORS else f"nothing is heard of rank {failing}"


# ---------------------------------------------------------------- in each of the processes


def _run(device: torch.device, plan: faulty.Plan, folder: Path) -> None:
    os.environ["DOVETAIL_CACHE_DIR"] = str(folder / "kept")
    failed_ranks.PATIENCE = 1.0  # who raises has said so before its peers notice
    torch.set_default_dtype(torch.float64)  # chains amplify differences
    warnings.simplefilter("ignore")
    eager = faulty.program(plan, lambda fn: fn)
    fatal = plan.fault in faulty.FATAL
    expected = [eager(call) for call in range(plan.when if fatal else faulty.CALLS)]
    with dovetail.config.patch(strict=False):
        compiled = faulty.program(plan, dovetail.compile)
        for call in range(faulty.CALLS):
            with ExitStack() as stack:
                faulty.put_in(plan, call, stack)
                found = compiled(call)
            if call < len(expected):
                _compare(found, expected[call], call)


def _compare(found: list[torch.Tensor], expected: list[torch.Tensor], call: int) -> None:
    try:
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)
    except AssertionError as error:
        print(f"call {call} differs: {error}", flush=True)
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    found = []
    for seed in range(options.first, options.first + options.runs):
        wrong = problem(seed)
        if wrong:
            found.append(wrong)
            print(wrong, flush=True)
    print(f"{options.runs} runs, {len(found)} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
