"""Work shared among forked processes. One that crashes is replaced, and what it was at has a result all the same."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items after which a process is replaced: compiled code and interned expressions pile up.
BLOCK = 500
_CONTEXT = multiprocessing.get_context("fork")


class _Worker:
    """A process that works through `left`, whose first item it is at."""

    def __init__(self, work: Callable[[Any], Any], block: Sequence[Any]) -> None:
        self.left = list(block)
        self.pipe, theirs = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(target=_work, args=(work, self.left, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def end(self) -> str:
        """How the process ended."""
        self.process.join()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _work(work: Callable[[Any], Any], items: Sequence[Any], pipe: Connection) -> None:
    for item in items:
        pipe.send(work(item))


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
                    if worker.left:
                        yield crashed(worker.left[0], how)
                        blocks += [worker.left[1:]] if worker.left[1:] else []
                else:
                    del worker.left[0]
                    yield result
    finally:
        for worker in running.values():
            worker.process.kill()
            worker.process.join()
