"""A process that waits in a collective for a peer that has failed, over NCCL.

The peer will not take part. A library like gloo says so at once; NCCL waits in kernels until the group's timeout is
over, and the main thread waits for what they compute. So a thread looks whether a peer has left word of an error. If
the main thread stands still from then on, in a collective or while the device is at work, the communicators are
aborted, which ends their kernels, and it raises `PeerFailed`. A process that needs nobody goes on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable

import torch
from torch import distributed

#: Seconds between two looks for errors of peers.
PERIOD = 5.0
#: Seconds at one place that count as standing still, and after which a thread that does not raise ends the process.
GRACE = 15.0
_STEP = 0.1
_COLLECTIVES = os.path.join("torch", "distributed", "")


class PeerFailed(distributed.DistError):
    """Another thread can only say which class the main thread is to raise."""

    told = ""

    def __init__(self) -> None:
        super().__init__(f"a collective was left, in which not all ranks take part: {self.told}")


def watch(failed: Callable[[], str]) -> None:
    """From now on, in this process. `failed`: who has failed, once somebody has."""
    stream = torch.cuda.default_stream() if torch.cuda.is_available() else None
    works = lambda: stream is not None and not stream.query()
    threading.Thread(target=_watch, args=(failed, works, distributed.get_rank()), daemon=True).start()


def _watch(failed: Callable[[], str], device_works: Callable[[], bool], rank: int) -> None:
    while not (told := failed()):
        time.sleep(PERIOD)
    while not (_stands_still() and (_in_collective() or device_works())):
        pass
    PeerFailed.told = told
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(PeerFailed))
    threading.Thread(target=distributed.distributed_c10d._abort_process_group, daemon=True).start()
    if _stands_still():
        print(f"[rank{rank}]: {PeerFailed()}", file=sys.stderr, flush=True)
        os._exit(1)


def _stands_still() -> bool:
    """Is the main thread at one place for so long?"""
    place, end = _place(), time.monotonic() + GRACE
    while time.monotonic() < end:
        time.sleep(_STEP)
        if _place() != place:
            return False
    return True


def _place() -> tuple[int, int]:
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return id(frame), frame.f_lasti


def _in_collective() -> bool:
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return _COLLECTIVES in frame.f_code.co_filename
