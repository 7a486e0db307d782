"""Faults in one of two ranks: nobody hangs, nothing is wrong, and who fails says so.

    python -m tests.distributed.faults [--runs 200] [--first 0]

Each run is a random program with a fault (`faulty.py`), in two processes that talk over gloo. After a harmless fault
all results are eager's. After a fatal one the rank raises what it raises in eager mode, or is gone, and its peer ends
by itself in a minute: it raises and names that rank, or had no more to wait for. Errors are printed with the rank that
raises them.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import dovetail
from tests.distributed import faulty

#: Seconds that a rank waits for the other in a collective, and in which all of a run's processes have to end.
PATIENCE, BOUND = 15, 60
RANKS = 2
_ERRORS = {"raises": "Injected", "wrong index": "Error"}


def problem(seed: int) -> str:
    """What is wrong with a run; nothing if all is well."""
    plan = faulty.Plan.drawn(seed)
    with tempfile.TemporaryDirectory(prefix="faults") as name:
        folder = Path(name)
        children = [_forked(plan, rank, folder) for rank in range(RANKS)]
        codes = _ended(children)
        told = [path.read_text() if (path := folder / f"told{rank}").exists() else "" for rank in range(RANKS)]
    found = _wrong(plan, codes, told)
    parts = "\n".join(f"rank {rank} ended with {codes[rank]}: {told[rank][-3000:]}" for rank in range(RANKS))
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


def _ended(children: list[int]) -> list[int | None]:
    """Exit codes; None of what had to be killed."""
    codes: list[int | None] = [None] * len(children)
    deadline = time.monotonic() + BOUND
    left = dict(enumerate(children))
    while left and time.monotonic() < deadline:
        for rank, child in list(left.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                codes[rank] = os.waitstatus_to_exitcode(status)
                del left[rank]
        time.sleep(0.02)
    for child in left.values():
        os.kill(child, 9)
        os.waitpid(child, 0)
    return codes


# ---------------------------------------------------------------- in each of the processes


def _forked(plan: faulty.Plan, rank: int, folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    output = os.open(folder / f"told{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.dump_traceback_later(BOUND - 5, file=sys.__stderr__)
    try:
        _run(plan, rank, folder)
        os._exit(0)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        os._exit(1)


def _run(plan: faulty.Plan, rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # chains amplify differences
    warnings.simplefilter("ignore")
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank), "DOVETAIL_CACHE_DIR": str(folder / "kept")}
    timeout = timedelta(seconds=PATIENCE)
    store = dist.FileStore(str(folder / "meeting"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timeout)
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
    dist.barrier()


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
