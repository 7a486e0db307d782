"""A process that stands still once a peer has failed, and one that does not."""

from __future__ import annotations

import json
import time

import pytest
from torch import distributed

from tests.forks import python

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="no torch.distributed")
BEGIN = """
import threading, time
from torch import distributed
from dovetail.interop import peer_watch

peer_watch.PERIOD, peer_watch.GRACE, peer_watch._STEP = 0.05, 0.5, 0.01
peer_watch._in_collective = lambda: True
distributed.get_rank = lambda: 0
lock = threading.Lock()
lock.acquire()
distributed.distributed_c10d._abort_process_group = {abort}
began = time.monotonic()
peer_watch.watch(lambda: "rank 1 raised IndexError" if time.monotonic() > began + 0.2 else "")
"""
TOLD = "a collective was left, in which not all ranks take part: rank 1 raised IndexError"


def ended(program: str, abort: str = "lock.release") -> tuple[int, str]:
    done = python("-c", BEGIN.format(abort=abort) + program, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_who_stands_still_raises() -> None:
    code, told = ended("try: lock.acquire()\nexcept RuntimeError as error: print(error)")
    assert (code, told.strip()) == (0, TOLD)


def test_what_does_not_wake_up_is_ended() -> None:
    begin = time.monotonic()
    code, told = ended("lock.acquire()", abort="lambda: time.sleep(60)")
    assert (code, told.strip()) == (1, f"[rank0]: {TOLD}") and time.monotonic() < begin + 30


def test_who_needs_nobody_goes_on() -> None:
    at_work = "work = lambda n: n and work(n - 1)\nwhile time.monotonic() < began + 1.5: work(20)\nprint('done')"
    assert ended(at_work) == (0, "done\n")
    assert ended("peer_watch._in_collective = lambda: False\ntime.sleep(1.5)\nprint('done')") == (0, "done\n")


KILLED = """
import json, os, sys, tempfile, threading
from pathlib import Path
from torch import distributed
from benchmarks.distributed.processes import Ranks
from dovetail.interop import failed_ranks, peer_watch

def work(device):
    peer_watch.PERIOD, peer_watch.GRACE, peer_watch._STEP = 0.05, 0.5, 0.01
    peer_watch._in_collective = lambda: True
    lock = threading.Lock()
    lock.acquire()
    distributed.distributed_c10d._abort_process_group = lock.release
    distributed.get_backend_config = lambda: "cuda:nccl"
    failed_ranks.listen()
    store = distributed.distributed_c10d._get_default_store()
    if distributed.get_rank() == 1:
        store.get("both are known")
        os.kill(os.getpid(), 9)
    while store.add(failed_ranks.Peers(0).key, 0) < 2:
        pass
    store.set("both are known", "")
    lock.acquire()  # over gloo, a collective would say at once that a connection was closed

with tempfile.TemporaryDirectory() as folder:
    tempfile.tempdir = folder
    ended = Ranks(2, Path(folder), patience=60, limit=50, alone=40).run(work)
    print(json.dumps([[each.code, each.told] for each in ended]))
"""


def test_who_waits_for_one_that_was_killed_raises() -> None:
    done = python("-c", KILLED, timeout=100)
    (code, told), (killed, _) = json.loads(done.stdout)
    assert (code, killed) == (1, -9), done.stdout
    assert "not all ranks take part: rank 1 ended without a word, as a process that is killed does" in told
