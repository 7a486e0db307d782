"""A rank that waits in a collective over NCCL for one that has failed: it raises as well, long before the timeout."""

from __future__ import annotations

import json

import pytest
import torch

from tests.forks import python

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
PROGRAM = """
import json, os, sys, tempfile, time
from pathlib import Path
import torch, torch.distributed as dist, dovetail
from benchmarks.distributed.processes import Ranks

def work(device):
    step = dovetail.compile(lambda x: x.sin() * 2)
    total = step(torch.ones(4, device=device))
    dist.all_reduce(total)
    print("first", total.sum().item(), flush=True)
    if dist.get_rank() == 1:
        sys.argv[1] == "killed" and os.kill(os.getpid(), 9)
        raise IndexError("9")
    dist.all_reduce(total)
    print("went on with", total.sum().item(), flush=True)

with tempfile.TemporaryDirectory() as folder:
    began = time.time()
    ended = Ranks(2, Path(folder), "cuda", patience=300, limit=100, alone=90).run(work)
    print(json.dumps([[each.code, each.told, each.time - began] for each in ended]))
"""


@pytest.mark.parametrize(
    ("way", "ended", "said"),
    [("raises", 1, "rank 1 raised IndexError: 9"), ("killed", -9, "rank 1 ended without a word")],
)
def test_the_peer_is_told_within_a_minute(way: str, ended: int, said: str) -> None:
    done = python("-c", PROGRAM, way, timeout=150)
    (code, told, seconds), (failed, *_) = json.loads(done.stdout.splitlines()[-1])
    assert failed == ended and code not in (0, None) and seconds < 60, done.stdout
    assert said in told or way == "killed" and "remote process exited" in told, told  # NCCL may be sooner
    assert "went on" not in told
