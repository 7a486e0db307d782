"""Ranks on this machine that were killed: they are gone, and nothing of theirs has run at the end.

Each has told the store of the process group which process it is, and has a file that it takes away when it ends, with
an error or without. No clock decides: a process that is stopped, or that compiles for minutes, is there, and one that
ends early takes its file away. Nothing like that can be known of other machines' processes: the ranks there look, and
tell.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from typing import Any

from dovetail.ir.records import dataclass

_KEY = "dovetail/lives/{}".format
_FILE = "dovetail-rank-"
#: Seconds after which nobody looks for the file of a process that is gone.
OLD = 3600.0


@dataclass(frozen=True)
class Peer:
    """`began`: in ticks since the machine did, so that another process of that number is not taken for it."""

    rank: int
    process: int
    began: str
    file: Path

    def is_killed(self) -> bool:
        """And does this process see itself?"""
        try:
            return _began(self.process) != self.began and self.file.exists() and _began(os.getpid()) != ""
        except OSError:  # too many open files, perhaps
            return False


class Peers:
    """The other ranks of this machine that have told which process they are, as this one does."""

    def __init__(self, rank: int) -> None:
        self.rank, self.found, self.words, self.key = rank, list[Peer](), "", ""
        self.told = 0  # so many have
        with suppress(OSError):  # without /proc nothing is known
            self.words, self.key = f"{rank}\n{os.getpid()}\n{_began(os.getpid())}\n{_file()}", _KEY(_machine())

    def learn(self, store: Any) -> None:
        """Of those that have told since the last time."""
        if self.words:
            store.set(f"{self.key}/{store.add(self.key, 1)}", self.words)
            self.words = ""
        while self.key and self.told < store.add(self.key, 0) and store.check([f"{self.key}/{self.told + 1}"]):
            self.told += 1
            rank, process, began, file = store.get(f"{self.key}/{self.told}").decode().split("\n")
            if int(rank) != self.rank:
                self.found.append(Peer(int(rank), int(process), began, Path(file)))

    def killed(self) -> Peer | None:
        return next((peer for peer in self.found if peer.is_killed()), None)


def _machine() -> str:
    """The same where processes have numbers of one kind."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")


def _began(process: int) -> str:
    """When it did; nothing of one that has ended."""
    try:
        state, *values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else values[18]


def _file() -> Path:
    """What this process takes away as it ends, made in place of those that were killed long ago."""
    for old in Path(tempfile.gettempdir()).glob(f"{_FILE}*"):
        with suppress(OSError, ValueError):
            if time.time() - old.stat().st_mtime > OLD and not _began(int(old.name.split("-")[2])):
                old.unlink()
    handle, name = tempfile.mkstemp(prefix=f"{_FILE}{os.getpid()}-")
    os.close(handle)
    util.Finalize(None, taken_away, (name,), exitpriority=0)  # of this process, not of those that it forks
    return Path(name)


def taken_away(file: str | Path) -> None:
    with suppress(OSError):
        os.unlink(file)
