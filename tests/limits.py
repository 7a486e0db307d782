"""A limit on how long a block may take."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def time_limit(seconds: int, error: BaseException) -> Iterator[None]:
    """Raises `error` inside the block when it takes longer; in the main thread only."""

    def stop(*_: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
