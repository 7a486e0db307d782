"""Kernels that are compiled while Python goes on: a thread for each waits for a process of `workers.py`."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from dovetail.ir.stores import Store
from dovetail.runtime.gpu import workers

#: Kernels that have been begun and nobody has asked for yet.
MOST = 4096

Work = Callable[[], bytes]


class KernelQueue:
    """What is compiled, as many kernels at a time as there are workers, in the order in which it was begun.

    Its threads end when nothing is left. The process does not wait for them when it ends, as it would for those of a
    `ThreadPoolExecutor`. All methods may be called by several threads.
    """

    def __init__(self) -> None:
        self.begun = Store(MOST)  # a Future for each key
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """A forked process has none of its parent's threads."""
        self.begun.clear()
        self.lock = threading.RLock()
        self.left = deque[tuple[Future[bytes], Work]]()
        self.threads = 0

    def begin(self, key: Hashable, work: Work) -> None:
        """Let `take` find it under way."""
        with self.lock:
            if key not in self.begun:
                self.begun.keep(key, self._submit(work))

    def give_up(self, key: Hashable) -> None:
        """Nobody will take it."""
        with self.lock:
            found: Future[bytes] | None = self.begun.pop(key, None)
            if found is not None:
                found.cancel()

    def take(self, key: Hashable, work: Work) -> Future[bytes]:
        """What has been begun under the key, or is now."""
        with self.lock:
            found: Future[bytes] | None = self.begun.pop(key, None)
            return self._submit(work) if found is None else found

    def _submit(self, work: Work) -> Future[bytes]:
        future = Future[bytes]()
        self.left.append((future, work))
        if self.threads < workers.at_once():
            self.threads += 1
            try:
                threading.Thread(target=self._work, name="dovetail kernels", daemon=True).start()
            except RuntimeError:  # there are too many, or the program ends
                self._work()
        return future

    def _work(self) -> None:
        while True:
            with self.lock:
                if not self.left:
                    self.threads -= 1
                    return
                future, work = self.left.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # whoever asks for the result is told
                    future.set_exception(error)


AHEAD = KernelQueue()
