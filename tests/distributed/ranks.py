"""Processes that talk to each other and run the cases of one program, each case bounded in time.

    python -m tests.distributed.ranks parallel_data RANKS FOLDER

There are two of them on the CPU, which talk over gloo. The environment's RANKS asks for more, and RANKS_BACKEND=nccl
for one on each GPU.

The cases of a program are its functions whose names begin with `case_`, or with `more_case_` where the environment asks
for ranks. They run in order, in processes that are started once for a file of tests. After each case the ranks wait for
each other, so that the next one begins in step also where one has failed.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.distributed.processes import Ranks
from tests.forks import PLACES, python

WORLD = int(os.environ.get("RANKS", "2"))
BACKEND = os.environ.get("RANKS_BACKEND", "gloo")
#: Seconds that a rank waits for the other one in a collective.
PATIENCE = 60
#: Seconds for a case; a rank that is not done then prints where it is, and ends.
BOUND = 200
#: Seconds for a whole program.
LIMIT = 500
#: What ranks import: PyTorch's compiler takes most of a second, and wrappers ask it whether they are being traced.
IMPORTED = (
    "torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel", "dovetail.pipeline", "networkx", "dovetail.codegen.cpu.kernel",
)  # fmt: skip
#: How definitions of cases begin.
CASES = ("def case_", "def more_case_") if {"RANKS", "RANKS_BACKEND"} & {*os.environ} else ("def case_",)
_MARK = "@@ "


def cases_of(module: str) -> list[str]:
    """The names of a program's cases, from its text: the process that runs the tests does not import it."""
    text = Path(__file__).with_name("programs").joinpath(f"{module}.py").read_text()
    return [line[len("def ") : line.index("(")] for line in text.splitlines() if line.startswith(CASES)]


def outcomes(module: str, folder: Path, ranks: int = WORLD) -> dict[str, str]:
    """What each case wrote before it failed, on any rank; nothing where it passed on all."""
    settings = os.environ | {"PYTHONPATH": PLACES, "GLOO_SOCKET_IFNAME": "lo"}
    words = (module, str(ranks), str(folder))
    done = python("-m", "tests.distributed.ranks", *words, env=settings, timeout=LIMIT, imported=IMPORTED)
    told = json.loads(done.stdout) if done.returncode == 0 else [""] * ranks
    return _by_case(cases_of(module), [text + done.stderr for text in told])


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


def _run(device: torch.device, module: str, folder: Path) -> None:
    os.environ["DOVETAIL_CACHE_DIR"] = str(folder / f"kept{dist.get_rank()}")
    program = importlib.import_module(f"tests.distributed.programs.{module}")
    store: dist.Store = dist.distributed_c10d._get_default_store()
    for name in cases_of(module):
        print(f"{_MARK}{name}", flush=True)
        faulthandler.dump_traceback_later(BOUND, exit=True, file=sys.__stdout__)
        if _passes(getattr(program, name)):
            print("passed", flush=True)
        store.set(f"{name}/{dist.get_rank()}", "over")
        store.wait([f"{name}/{other}" for other in range(dist.get_world_size())])
    faulthandler.cancel_dump_traceback_later()


def _passes(case: Callable[[], None]) -> bool:
    torch.manual_seed(0)
    try:
        case()
        return True
    except BaseException:  # the other rank is waiting for the next case
        traceback.print_exc(file=sys.stdout)
        return False


def main() -> None:
    module, ranks, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    kind = "cuda" if BACKEND == "nccl" else "cpu"
    started = Ranks(ranks, folder, kind, PATIENCE, LIMIT, alone=PATIENCE)
    print(json.dumps([ended.told for ended in started.run(functools.partial(_run, module=module, folder=folder))]))


if __name__ == "__main__":
    main()
