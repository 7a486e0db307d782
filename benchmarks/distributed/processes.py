"""A set of processes, one a device, that call one function together; bounded in time. Tests start theirs here as well.

They are forks of this process, which has imported PyTorch and must not touch a device. What a process prints is in a
file of its own, and ends with the traceback of what it raises.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

#: What a process calls; its result is written as JSON.
Work = Callable[[torch.device], Any]
_CACHES = ("DOVETAIL_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True)
class Ranks:
    """So many processes, on the CPU or one on each CUDA device, that meet in `folder` and leave there what they print.

    `patience`: seconds that one waits for others in a collective. `limit`: seconds for all. `alone`: those that the
    others are left when one has failed; each ends by itself, or is ended.
    """

    number: int
    folder: Path
    kind: str = "cpu"
    patience: float = 60
    limit: float = 60
    alone: float = 0

    def run(self, work: Work) -> list[Ended]:
        children = [self._forked(work, rank) for rank in range(self.number)]
        told = [self.folder / f"told{rank}" for rank in range(self.number)]
        codes = self._codes(children)
        return [Ended(code, p.read_text(), p.stat().st_mtime) for code, p in zip(codes, told, strict=True)]

    def result(self, rank: int) -> Any:
        """What `work` gave in the process."""
        return json.loads((self.folder / f"done{rank}").read_text())

    def _codes(self, children: list[int]) -> list[int | None]:
        codes: list[int | None] = [None] * len(children)
        left, end = dict(enumerate(children)), time.monotonic() + self.limit
        while left and time.monotonic() < end:
            for rank, child in list(left.items()):
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    del left[rank]
                    end = min(end, time.monotonic() + self.alone) if codes[rank] else end
            time.sleep(0.02)
        for child in left.values():
            os.kill(child, 9)
            os.waitpid(child, 0)
        return codes

    # ------------------------------------------------------------ in each of the processes

    def _forked(self, work: Work, rank: int) -> int:
        child = os.fork()
        if child:
            return child
        output = os.open(self.folder / f"told{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.dump_traceback_later(max(self.limit - 5, 1), file=sys.__stderr__)
        try:
            device = self._joined(rank)
            done = json.dumps(work(device))
            dist.barrier()
            (self.folder / f"done{rank}").write_text(done)
            os._exit(0)
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
            os._exit(1)  # without waiting for what the others would have to answer

    def _joined(self, rank: int) -> torch.device:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.number)}
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        device = torch.device(self.kind, rank) if self.kind == "cuda" else torch.device(self.kind)
        if self.kind == "cuda":
            torch.cuda.set_device(device)
        else:
            torch.set_num_threads(1)
        timeout = timedelta(seconds=self.patience)
        store = dist.FileStore(str(self.folder / "meeting"), self.number)
        store.set_timeout(timeout)
        dist.init_process_group(
            _BACKENDS[self.kind], store=store, rank=rank, world_size=self.number, timeout=timeout,
            device_id=device if self.kind == "cuda" else None,
        )  # fmt: skip
        return device


@dataclass(frozen=True)
class Ended:
    """The exit code of a process, None where it had to be ended, what it printed, and when it did so last."""

    code: int | None
    told: str
    time: float = 0.0


class Failed(Exception):
    """The last line of what a process raised, with its rank; or that time was over."""


def devices() -> list[str]:
    """The names of the CUDA devices, asked in a process of its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return [pool.apply(torch.cuda.get_device_name, (k,)) for k in range(pool.apply(torch.cuda.device_count))]


def together(work: Work, kind: str, ranks: int, limit: float) -> list[Any]:
    """What `work` gives in each of so many processes, by rank; their compilers' caches are empty and shared."""
    with tempfile.TemporaryDirectory(prefix="bench") as name:
        folder = Path(name)
        started = Ranks(ranks, folder, kind, limit, limit)
        ended = started.run(functools.partial(_with_caches, work=work, folder=folder))
        failed = [rank for rank in range(ranks) if ended[rank].code]
        if failed:  # the others may have raised because of the first
            first = min(failed, key=lambda rank: ended[rank].time)
            told = ended[first].told.strip() or f"ended with {ended[first].code}"
            raise Failed(f"rank {first}: {told.splitlines()[-1]}")
        if any(each.code is None for each in ended):
            raise Failed(f"took longer than {limit:.0f} s")
        return [started.result(rank) for rank in range(ranks)]


def _with_caches(device: torch.device, work: Work, folder: Path) -> Any:
    os.environ |= {name: str(folder / name) for name in _CACHES}
    warnings.simplefilter("ignore")
    return work(device)
