"""A set of processes, one a device, that call one function together; bounded in time.

They are forks of this process, which has imported PyTorch and must not touch a device. What one of them raises ends all
of them: the others would wait for it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

#: What a process calls; its result is written as JSON.
Work = Callable[[torch.device], Any]
_CACHES = ("DOVETAIL_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


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
        context = multiprocessing.get_context("fork")
        given = [(work, kind, rank, ranks, folder, limit) for rank in range(ranks)]
        children = [context.Process(target=_process, args=some) for some in given]
        for child in children:
            child.start()
        in_time = _ended(children, time.monotonic() + limit)
        for child in children:
            child.kill()
            child.join()
        failed = sorted(folder.glob("failed*"), key=lambda path: path.stat().st_mtime)
        if failed:
            rank = failed[0].name.removeprefix("failed")
            raise Failed(f"rank {rank}: {failed[0].read_text().strip().splitlines()[-1]}")
        if not in_time:
            raise Failed(f"took longer than {limit:.0f} s")
        return [json.loads(_result(folder, rank, child).read_text()) for rank, child in enumerate(children)]


def _ended(children: list[BaseProcess], deadline: float) -> bool:
    """Whether all have ended, or one has failed, before the deadline."""
    while time.monotonic() < deadline:
        if any(child.exitcode for child in children) or not any(child.is_alive() for child in children):
            return True
        time.sleep(0.05)
    return False


def _result(folder: Path, rank: int, child: BaseProcess) -> Path:
    path = folder / f"done{rank}"
    if not path.exists():
        raise Failed(f"rank {rank} ended with {child.exitcode}")
    return path


def _process(work: Work, kind: str, rank: int, ranks: int, folder: Path, limit: float) -> None:
    os.environ |= {name: str(folder / name) for name in _CACHES}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    warnings.simplefilter("ignore")
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "meeting"), ranks)
    try:
        dist.init_process_group(
            _BACKENDS[kind], store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=limit),
            device_id=device if kind == "cuda" else None,
        )  # fmt: skip
        done = json.dumps(work(device))
        dist.barrier()
    except Exception:
        (folder / f"failed{rank}").write_text(traceback.format_exc())
        os._exit(1)  # without waiting for what the others would have to answer
    (folder / f"done{rank}").write_text(done)
    os._exit(0)
