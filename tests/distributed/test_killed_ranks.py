"""Which processes count as killed: those that are gone, and that did not end by themselves."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from torch import distributed

from dovetail.interop import killed_ranks
from tests.forks import python

pytestmark = [
    pytest.mark.skipif(not distributed.is_available(), reason="no torch.distributed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc"),
]
PROGRAM = """
import atexit, json, multiprocessing, os, signal, sys, tempfile, time
from torch import distributed
from dovetail.interop.killed_ranks import Peers

def rank(store, end):
    sys.stderr = open(os.devnull, "w")
    peers = Peers(1)
    peers.learn(store)
    if os.fork() == 0:  # what a rank has forked ends, and not the rank
        atexit._run_exitfuncs()
        os._exit(0)
    os.wait()
    store.set("ready", "")
    end()

def interpreters_end():
    atexit._run_exitfuncs()
    os._exit(0)

def signalled(number):
    return lambda: os.kill(os.getpid(), number)

ENDS = {
    "ends": lambda: None, "exits": lambda: sys.exit(3), "raises": lambda: [][0], "interpreter": interpreters_end,
    "kill": signalled(signal.SIGKILL), "segfault": signalled(signal.SIGSEGV), "stopped": lambda: time.sleep(60),
}
found = {}
tempfile.tempdir = sys.argv[1]
for name, end in ENDS.items():
    store = distributed.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 2)
    peers = Peers(0)
    other = multiprocessing.get_context("fork").Process(target=rank, args=(store, end))
    other.start()
    store.get("ready")
    if name == "stopped":
        os.kill(other.pid, signal.SIGSTOP)
    else:
        while open(f"/proc/{other.pid}/stat").read().rpartition(")")[2].split()[0] != "Z":  # nobody waits for it yet
            time.sleep(0.01)
    found[name] = []
    for _ in range(2):
        peers.learn(store)
        found[name].append(getattr(peers.killed(), "rank", None))
        name == "stopped" and other.kill()
        other.join()
print(json.dumps(found))
"""


def test_who_is_gone_without_an_end_of_its_own(tmp_path: Path) -> None:
    """Seen before its parent waits for it, and afterwards."""
    done = python("-c", PROGRAM, str(tmp_path), timeout=60)
    assert done.returncode == 0, done.stderr
    ended = {name: [None, None] for name in ("ends", "exits", "raises", "interpreter")}
    assert json.loads(done.stdout) == ended | {"kill": [1, 1], "segfault": [1, 1], "stopped": [None, 1]}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def peer(tmp_path: Path) -> killed_ranks.Peer:
    file = tmp_path / "file"
    file.touch()
    return killed_ranks.Peer(1, 1, "another process", file)


def test_who_sees_no_processes_says_nothing(peer: killed_ranks.Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert peer.is_killed()

    def full(file: Path) -> str:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(killed_ranks, "_began", lambda process: "")
        assert not peer.is_killed()
    monkeypatch.setattr(Path, "read_text", full)
    assert not peer.is_killed()
    peers = killed_ranks.Peers(0)
    peers.learn(distributed.HashStore())
    assert peers.killed() is None


def test_files_of_long_ago_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"dovetail-rank-{process}-a" for process in (2**30, 1, "x")]
    for name in names:
        (tmp_path / name).touch()
    killed_ranks.Peers(0)
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 2 * killed_ranks.OLD)
    killed_ranks.Peers(0)
    left = {file.name for file in tmp_path.iterdir()}
    assert len(left) == 4 and not left.isdisjoint(names) and names[0] not in left
