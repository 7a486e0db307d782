"""Who failed, where several processes compute together: a rank that raises leaves a line in the store of the process
group, and a peer whose collective fails adds what others left to its own error.

    [rank0]: RuntimeError: [...] Connection closed by peer [127.0.0.1]:4328. [...]
    [rank0]: rank 1 raised IndexError: index 9 is out of bounds

Only errors that nobody catches count, and those that end a process of `multiprocessing`, which catches all: there the
lines are printed. A collective fails with what its library says: gloo's as soon as a peer is gone, NCCL's when the
group's timeout is over, unless it is aborted before (`peer_watch.py`).
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from torch import distributed

from dovetail.interop.killed_ranks import Peer, Peers, taken_away
from dovetail.interop.peer_watch import watch

#: Seconds to wait for those that have failed, or whose collectives fail as well, to say so.
PATIENCE = 5.0
MOST = 8  # ranks in a line
_IN_COLLECTIVE = "in a collective"
_GONE = "the store of the process group, which rank 0 has if no launcher does, does not answer"
_LIBRARIES = ("gloo", "NCCL")
_KEY = "dovetail/raised/{}".format
_BEGAN = _KEY("first")


def listen() -> None:
    """From now on; once a process."""
    joined = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if joined and os.getpid() not in _listening:
        _listening.add(os.getpid())
        sys.excepthook = _with_culprits(sys.excepthook, os.getpid())
        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, _with_child, exitpriority=1)
        if "nccl" in str(distributed.get_backend_config()):
            watch(partial(_first, Peers(distributed.get_rank())))


_listening: set[int] = set()
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _with_culprits(before: Hook, process: int) -> Hook:
    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if os.getpid() == process and distributed.is_initialized() and isinstance(error, Exception):
            for line in _exchanged(error):
                error.add_note(line)
        before(kind, error, traceback)

    return hook


def _with_child() -> None:
    """A process of `multiprocessing` ends: with an error, if one is on its way."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code:  # torch.multiprocessing has caught the error, and told its parent
        error = error.__context__
    if distributed.is_initialized() and isinstance(error, Exception):
        for line in _exchanged(error):
            print(f"[rank{distributed.get_rank()}]: {line}", file=sys.stderr, flush=True)


def _store() -> Any:
    return distributed.distributed_c10d._get_default_store()


def _first(peers: Peers) -> str:
    """Who has failed first, if anybody has."""
    if not distributed.is_initialized():
        return ""
    try:
        store = _store()
        if store.check([_BEGAN]):
            return str(store.get(_BEGAN).decode())
        peers.learn(store)
        killed = peers.killed()
        if killed is None:
            return ""
        store.set(_BEGAN, _ended(killed))
        taken_away(killed.file)
        return _ended(killed)
    except (RuntimeError, ValueError) as gone:
        killed = peers.killed()
        return _ended(killed) if killed is not None else f"{_GONE}: {gone}"


def _exchanged(error: Exception) -> list[str]:
    """Leaves word of the error; what others say about theirs, if it is one of a collective."""
    failed = _is_of_collective(error)
    text = _IN_COLLECTIVE if failed else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    try:
        store = _store()
        store.set(_KEY(distributed.get_rank()), text)
        if not failed:
            store.set(_BEGAN, _raised(distributed.get_rank(), text))
        return _told_by_others(store) if failed else []
    except (RuntimeError, ValueError) as gone:
        return [f"{_GONE}: {gone}"] if failed else []


def _is_of_collective(error: Exception) -> bool:
    return isinstance(error, distributed.DistError) or (
        isinstance(error, RuntimeError) and any(library in str(error) for library in _LIBRARIES)
    )


def _told_by_others(store: Any) -> list[str]:
    silent = set(range(distributed.get_world_size())) - {distributed.get_rank()}
    culprits: list[str] = []
    end = time.monotonic() + PATIENCE
    while silent and not culprits and time.monotonic() < end:
        for rank in [rank for rank in sorted(silent) if store.check([_KEY(rank)])]:
            silent.remove(rank)
            text = store.get(_KEY(rank)).decode()
            culprits += [_raised(rank, text)] if text != _IN_COLLECTIVE else []
        time.sleep(0.05)
    return culprits or ([f"nothing is heard of {_listed(sorted(silent))}"] if silent else [])


def _raised(rank: int, text: str) -> str:
    return f"rank {rank} raised {text}"


def _ended(killed: Peer) -> str:
    return f"rank {killed.rank} ended without a word, as a process that is killed does"


def _listed(ranks: list[int]) -> str:
    first = ", ".join(map(str, ranks[:MOST]))
    more = f" and {len(ranks) - MOST} more" if len(ranks) > MOST else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {first}{more}"
