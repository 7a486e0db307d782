"""How a program ends, found out in a process of its own: an error, wrong values, a crash, or no end at all."""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from dovetail.errors import BackendError, InternalError
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class TrialEnding:
    """`kind` is what two endings must share to be the same failure; empty if the program is right."""

    kind: str
    message: str = ""


RIGHT = TrialEnding("")
ENDLESS = "no end"


def kind_of(error: BaseException) -> str:
    """The class, the stage that failed, and the class of what was raised there."""
    if isinstance(error, InternalError):
        cause = error.__cause__
        return f"InternalError in {error.stage}" + (f": {type(cause).__name__}" if cause is not None else "")
    if isinstance(error, BackendError) and error.__cause__ is not None:
        return f"BackendError: {type(error.__cause__).__name__}"
    return type(error).__name__


@dataclass
class Patience:
    """How long a run may take: `most` seconds, or far more than any that has ended, once some have."""

    most: float
    longest: float = 0.0
    ended: int = 0

    def seconds(self) -> float:
        return self.most if self.ended < 3 else min(self.most, max(3.0, 5 * self.longest))

    def ending(self, run: Callable[[], Any]) -> TrialEnding:
        start = time.monotonic()
        found = ending(run, self.seconds(), "spawn" if torch.cuda.is_initialized() else "fork")
        if found.kind != ENDLESS:
            self.longest, self.ended = max(self.longest, time.monotonic() - start), self.ended + 1
        return found


def ending(run: Callable[[], Any], seconds: float, start: str = "fork") -> TrialEnding:
    """Run it in a child process. A fork inherits this one's memory, so that nothing needs to be imported again.

    Where a GPU is in use, which no fork can go on with, the child must be spawned.
    """
    context: Any = multiprocessing.get_context(start)
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(run, writer))
    child.start()
    writer.close()
    found = _received(reader, seconds)
    if found is None:
        child.kill()
    child.join()
    if found is not None:
        return found
    if child.exitcode is not None and child.exitcode < 0 and child.exitcode != -9:
        return TrialEnding(f"signal {-child.exitcode}", "the process crashed")
    if child.exitcode == -9:
        return TrialEnding(ENDLESS, f"it did not end within {seconds:.0f} s")
    return TrialEnding("exit")


def _received(reader: multiprocessing.connection.Connection, seconds: float) -> TrialEnding | None:
    """What the child says; None if it says nothing in time, or has ended without a word."""
    try:
        return reader.recv() if reader.poll(seconds) else None
    except EOFError:
        return None


def _child(run: Callable[[], Any], writer: multiprocessing.connection.Connection) -> None:
    torch.set_num_threads(1)  # the parent's threads are not here
    faulthandler.disable()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        run()
        writer.send(RIGHT)
    except BaseException as error:  # whatever it is, it is what is asked for
        writer.send(TrialEnding(kind_of(error), f"{type(error).__name__}: {error}"[:2000]))
    os._exit(0)
