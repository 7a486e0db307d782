"""Work shared among processes. One that crashes is replaced, and what it was at has a result all the same."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from tests.opdb.entries import DEVICE

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items after which a process is replaced: compiled code and interned expressions pile up.
BLOCK = 500


def context() -> Any:
    """Processes are forked, unless the GPU is theirs to use, or has been used here, which nothing forked gets over."""
    return multiprocessing.get_context("fork" if DEVICE == "cpu" and not torch.cuda.is_initialized() else "spawn")


class Spoilt(Exception):
    """Raised by work whose process can do no more, as after a GPU's error: the first argument is its result."""


class _Worker:
    """A process that works through `left`, whose first item it is at."""

    def __init__(self, work: Callable[[Any], Any], block: Sequence[Any]) -> None:
        self.left = list(block)
        self.pipe, theirs = context().Pipe(duplex=False)
        self.process = context().Process(target=_work, args=(work, self.left, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def end(self) -> str:
        """How the process ended; nothing where it returned."""
        self.process.join()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}" if code else ""


def _work(work: Callable[[Any], Any], items: Sequence[Any], pipe: Connection) -> None:
    for item in items:
        try:
            pipe.send(work(item))
        except Spoilt as spoilt:
            pipe.send(spoilt.args[0])
            return


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], count: int, crashed: Callable[[Item, str], Result],
    block: int = BLOCK,
) -> Iterator[Result]:
    """`work` of each item as they come, from `count` processes; `crashed(item, how)` for one that ended its process."""
    blocks = [items[k : k + block] for k in range(0, len(items), block)][::-1]
    running: dict[Connection, _Worker] = {}
    try:
        while blocks or running:
            while blocks and len(running) < count:
                worker = _Worker(work, blocks.pop())
                running[worker.pipe] = worker
            for pipe in wait(list(running)):
                worker = running[pipe]  # type: ignore[index]
                try:
                    result = worker.pipe.recv()
                except EOFError:
                    del running[worker.pipe]
                    how = worker.end()
                    if how and worker.left:
                        yield crashed(worker.left.pop(0), how)
                    blocks += [worker.left] if worker.left else []
                else:
                    del worker.left[0]
                    yield result
    finally:
        for worker in running.values():
            worker.process.kill()
            worker.process.join()
