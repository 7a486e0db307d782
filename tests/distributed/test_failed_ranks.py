"""What a process adds to an error that nobody catches, where several compute together."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from dovetail.interop import failed_ranks
from dovetail.interop.killed_ranks import Peer, Peers
from tests.forks import python

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="no torch.distributed")
CLOSED = "[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4328"


class Rank:
    """One of several, whose processes are all this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: int) -> None:
        self.number, self.store = 0, distributed.HashStore()
        shown: list[BaseException] = []
        monkeypatch.setattr(failed_ranks, "PATIENCE", 0.2)
        monkeypatch.setattr(failed_ranks, "_listening", set())
        monkeypatch.setattr(distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(distributed, "get_world_size", lambda: world)
        monkeypatch.setattr(distributed, "get_rank", lambda: self.number)
        monkeypatch.setattr(distributed, "get_backend_config", lambda: "cpu:gloo")
        monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", self.default_store)
        monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: shown.append(error))
        failed_ranks.listen()

    def default_store(self) -> Any:
        if self.store is None:
            raise RuntimeError("Connection reset by peer")
        return self.store

    def ends(self, number: int, error: Exception) -> list[str]:
        """What is shown below the error of the rank."""
        self.number = number
        sys.excepthook(type(error), error, None)
        return getattr(error, "__notes__", [])


def test_the_peer_names_the_rank_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch, 3)
    told = ["rank 1 raised IndexError: index 9 is out of bounds"]
    assert rank.ends(1, IndexError("index 9 is out of bounds\nin a kernel")) == []
    assert rank.ends(0, RuntimeError(CLOSED)) == rank.ends(2, distributed.DistBackendError("aborted")) == told


def test_who_watches_is_told_of_the_first_that_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rank, peers = Rank(monkeypatch, 3), Peers(0)
    assert failed_ranks._first(peers) == ""
    rank.ends(0, RuntimeError(CLOSED))
    assert failed_ranks._first(peers) == ""  # that is of a collective
    rank.ends(2, IndexError("index 9 is out of bounds"))
    assert failed_ranks._first(peers) == "rank 2 raised IndexError: index 9 is out of bounds"
    rank.store = None
    assert "does not answer" in failed_ranks._first(peers)


def test_who_watches_tells_all_of_one_that_was_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rank, (near, far) = Rank(monkeypatch, 3), (Peers(0), Peers(2))
    told = "rank 1 ended without a word, as a process that is killed does"
    file = tmp_path / "file"
    file.touch()
    near.found.append(Peer(1, 1, "another process", file))
    assert failed_ranks._first(far) == ""
    store, rank.store = rank.store, None
    assert failed_ranks._first(near) == told  # rank 1 had the store
    rank.store = store
    assert failed_ranks._first(near) == failed_ranks._first(far) == told and not file.exists()


def test_who_is_gone_without_a_word_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch, 3)
    assert rank.ends(0, RuntimeError(CLOSED)) == ["nothing is heard of ranks 1, 2"]
    assert rank.ends(2, RuntimeError(CLOSED)) == ["nothing is heard of rank 1"]
    assert Rank(monkeypatch, 12).ends(0, RuntimeError(CLOSED)) == [
        "nothing is heard of ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"
    ]


def test_a_store_that_is_gone_with_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch, 2)
    rank.store = None
    (told,) = rank.ends(1, RuntimeError(CLOSED))
    assert told.startswith("the store of the process group, which rank 0 has") and told.endswith("reset by peer")
    assert rank.ends(1, ValueError("mine")) == []


CHILDREN = """
import multiprocessing
import torch.multiprocessing
from torch import distributed
from dovetail.interop import failed_ranks
from dovetail.interop.killed_ranks import Peer, Peers

def child(index, error):
    store = distributed.HashStore()
    store.set("dovetail/raised/1", "IndexError: 9")
    distributed.is_initialized, distributed.get_world_size, distributed.get_rank = lambda: True, lambda: 2, lambda: 0
    distributed.get_backend_config = lambda: "cpu:gloo"
    distributed.distributed_c10d._get_default_store = lambda: store
    failed_ranks.listen()
    left = lambda: print("left", store.get("dovetail/raised/0").decode(), flush=True)
    multiprocessing.util.Finalize(None, left, exitpriority=0)
    raise error

for error in ValueError("mine"), distributed.DistError("aborted"):
    own = multiprocessing.get_context("fork").Process(target=child, args=(0, error))
    own.start()
    started = torch.multiprocessing.start_processes(child, (error,), 1, join=False, start_method="fork")
    for process in own, *started.processes:
        process.join()
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="what is done at the end no longer sees the error")
def test_an_error_that_ends_a_process_of_multiprocessing() -> None:
    """It is caught there, by torch.multiprocessing once more, and `sys.excepthook` is not called."""
    done = python("-c", CHILDREN, timeout=60)
    assert done.stdout.splitlines() == ["left ValueError: mine"] * 2 + ["left in a collective"] * 2, done.stderr
    assert done.stderr.count("[rank0]: rank 1 raised IndexError: 9") == 2


def test_one_process_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rank(monkeypatch, 1).ends(0, RuntimeError(CLOSED)) == []
