"""Numbers of a program where its kernels find them: eight bytes each, in the device's memory.

A recorded CUDA graph has its kernels' arguments fixed; numbers that differ from call to call are read from memory that
is filled before each replay.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class _Recorded(threading.local):
    memory: torch.Tensor | None = None


_recorded = _Recorded()


def words(numbers: Sequence[Any]) -> torch.Tensor:
    """Integers as they are, floats by their bits: int64 on the CPU."""
    return torch.tensor([_word(n) for n in numbers], dtype=torch.int64)


def _word(number: Any) -> int:
    if isinstance(number, float):
        return int(struct.unpack("<q", struct.pack("<d", number))[0])
    return int(number)


def on_device(device: torch.device, *numbers: Any) -> torch.Tensor:
    """The numbers in the device's memory."""
    return words(numbers).to(device) if _recorded.memory is None else _recorded.memory


@contextmanager
def kept_in(memory: torch.Tensor | None) -> Iterator[None]:
    """Programs of this thread read their numbers from there."""
    _recorded.memory = memory
    try:
        yield
    finally:
        _recorded.memory = None
