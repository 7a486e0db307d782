"""Two processes that talk over gloo and run the cases of one program, each case bounded in time.

    python -m tests.distributed.ranks parallel_data RANK RANKS FOLDER

The cases of a program are its functions whose names begin with `case_`. They run in order, in processes that are
started once for a file of tests. After each case the ranks wait for each other, so that the next one begins in step
also where one has failed.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

WORLD = 2
#: Seconds that a rank waits for the other one in a collective.
PATIENCE = 60
#: Seconds for a case; a rank that is not done then prints where it is, and ends.
BOUND = 200
#: Seconds for a whole program.
LIMIT = 500
_MARK = "@@ "


def cases_of(module: str) -> list[str]:
    """The names of a program's cases, from its text: the process that runs the tests does not import it."""
    text = Path(__file__).with_name("programs").joinpath(f"{module}.py").read_text()
    return [line[len("def ") : line.index("(")] for line in text.splitlines() if line.startswith("def case_")]


def outcomes(module: str, folder: Path, ranks: int = WORLD) -> dict[str, str]:
    """What each case wrote before it failed, on any rank; nothing where it passed on all."""
    root = str(Path(__file__).resolve().parents[2])
    settings = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, module, str(rank), str(ranks), str(folder)],
            env=settings | {"DOVETAIL_CACHE_DIR": str(folder / f"kept{rank}")},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    texts: list[str] = []
    try:
        texts = [each.communicate(timeout=LIMIT)[0] for each in started]
    finally:
        for each in started:
            each.kill()
    return _by_case(cases_of(module), texts)


def _by_case(cases: list[str], texts: list[str]) -> dict[str, str]:
    found = dict.fromkeys(cases, "")
    for rank, text in enumerate(texts):
        parts = dict(part.partition("\n")[::2] for part in text.split(_MARK)[1:])
        for case in cases:
            told, passed, _ = parts.get(case, f"did not run\n{text[-3000:]}").partition("passed\n")
            if not passed:
                found[case] += f"rank {rank}: {told}\n"
    return found


# ---------------------------------------------------------------- in each of the processes


def _main(module: str, rank: int, ranks: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    timeout = timedelta(seconds=PATIENCE)
    store = dist.FileStore(str(folder / "meeting"), ranks)
    store.set_timeout(timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
    program = importlib.import_module(f"tests.distributed.programs.{module}")
    for name in cases_of(module):
        print(f"{_MARK}{name}", flush=True)
        faulthandler.dump_traceback_later(BOUND, exit=True, file=sys.__stdout__)
        if _passes(getattr(program, name)):
            print("passed", flush=True)
        store.set(f"{name}/{rank}", "over")
        store.wait([f"{name}/{other}" for other in range(ranks)])
    faulthandler.cancel_dump_traceback_later()
    dist.destroy_process_group()


def _passes(case: Callable[[], None]) -> bool:
    import torch

    torch.manual_seed(0)
    try:
        case()
        return True
    except BaseException:  # the other rank is waiting for the next case
        traceback.print_exc(file=sys.stdout)
        return False


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
