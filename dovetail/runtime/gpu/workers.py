"""Processes beside this one that compile kernels: `assembler.py`, and what it forks.

In threads of this process a kernel holds Python's lock for a third of its time, so that three at most are compiled at a
time, and what else the process does waits for them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dovetail.runtime.gpu import assembler
from dovetail.runtime.gpu.assembler import Binary, Task

#: Kernels that are compiled at once, at most.
MOST = 16
#: Seconds in which Triton must have been imported there.
PATIENCE = 60.0
_LOG = logging.getLogger("dovetail.perf_hints")


def at_once() -> int:
    """How many kernels to compile at a time: one for each processor that is this process's, of those that torchrun has
    started on the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(MOST, cores // max(1, int(ranks) if ranks.isdecimal() else 1)))


class Workers:
    """One program that compiles for this process. It is started when first wanted, and again after it has ended.

    All methods may be called by several threads. Where it cannot be started, or does not answer as it should, nothing
    is raised: kernels are compiled in this process then.
    """

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """What a forked process inherits is its parent's."""
        self._close()
        self.lock = threading.RLock()
        self.triton = ""  # its version
        self.off = ""  # why there will be none

    def start(self) -> None:
        """So that Triton has been imported when the first kernel comes. Takes a few milliseconds."""
        with self.lock:
            self._start()

    def version(self) -> str:
        """Triton's there; empty where it cannot be imported, or there is no such process."""
        with self.lock:
            if not self.triton and self._start():
                assert self.control is not None
                with contextlib.suppress(OSError):
                    self.triton = self.control.recv(1 << 10).decode()
                if not self.triton:
                    self._give_up("the process for that does not start, or cannot import Triton")
            return self.triton

    def compiled(self, task: Task) -> Binary | None:
        """Machine code of the task; None if this process has to compile it, if only to see what Triton says."""
        if not self.version():
            return None
        with self.lock:
            control = self.control if self._start() else None
        if control is None:
            return None
        given = asdict(task) | {"environment": dict(os.environ)}
        answer = b""
        with contextlib.suppress(OSError):
            job, theirs = socket.socketpair()
            with job:
                with theirs:
                    socket.send_fds(control, [b"j"], [theirs.fileno()])
                job.settimeout(None)
                job.sendall(json.dumps(given).encode())
                job.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: job.recv(1 << 16), b""))
        whole = len(answer) > 8 and len(answer) == 8 + int.from_bytes(answer[:8], "little")
        return Binary.of_bytes(answer[8:]) if whole else None

    def close(self) -> None:
        """Lets the process end."""
        with self.lock:
            self._close()

    def _start(self) -> bool:
        """Is it there?"""
        if self.control is None and not self.off:
            try:
                self._started(_program())
            except (OSError, RuntimeError) as error:  # the latter while Python ends, when no thread can be started
                self._give_up(str(error))
        return self.control is not None

    def _started(self, program: list[str]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE)
        quiet: Any = {"stdin": theirs, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with theirs:  # in a session of its own: Ctrl-C is for this process alone
            process = subprocess.Popen(program, start_new_session=True, **quiet)
        watch = threading.Thread(target=self._wait, args=(process, self.control), name="dovetail workers", daemon=True)
        watch.start()
        self.control.send(json.dumps([p for p in sys.path if isinstance(p, str)]).encode())

    def _wait(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        status = process.wait()
        with self.lock:
            if self.control is control:
                self._close() if status == 0 else self._give_up(f"the process for that ended with status {status}")

    def _give_up(self, why: str) -> None:
        self.off = why
        _LOG.info("GPU kernels are compiled in threads of this process: %s", why)
        self._close()

    def _close(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None


def _program() -> list[str]:
    """Raises OSError where there is no Python to run, as in a program that has one inside."""
    if sys.platform != "linux":
        raise OSError("processes for it exist on Linux")
    if not os.path.basename(sys.executable or "").startswith("python"):
        raise OSError(f"sys.executable is {sys.executable!r}")
    path = Path(assembler.__file__)
    if not path.is_file():
        raise OSError(f"{path} is no file")
    return [sys.executable, "-S", "-P", str(path)]


WORKERS = Workers()
atexit.register(WORKERS.close)
