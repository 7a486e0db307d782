"""Numbers of a program where its kernels find them: eight bytes each, in the device's memory.

A recorded CUDA graph has its kernels' arguments fixed; numbers that differ from call to call are read from memory that
is filled before each replay.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class _Recorded(threading.local):
    memory: torch.Tensor | None = None
    tables: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    space: torch.Tensor | None = None  # for tables
    words: int = 0  # of tables since `counted`
    cut: Callable[[], None] | None = None


_recorded = _Recorded()


def words(numbers: Sequence[Any]) -> torch.Tensor:
    """Integers as they are, floats by their bits: int64 on the CPU."""
    return torch.tensor([_word(n) for n in numbers], dtype=torch.int64, device="cpu")


def _word(number: Any) -> int:
    if isinstance(number, float):
        return int(struct.unpack("<q", struct.pack("<d", number))[0])
    return int(number)


def on_device(device: torch.device, *numbers: Any) -> torch.Tensor:
    """The numbers in the device's memory."""
    return words(numbers).to(device) if _recorded.memory is None else _recorded.memory


def table(device: torch.device, given: Sequence[int]) -> torch.Tensor:
    """The words in the device's memory. While a program is recorded they are the same for all replays: the memory is
    filled when the recording is complete, and is none of the recording's own, which temporaries take turns in."""
    host = torch.tensor(given, dtype=torch.int64, device="cpu")
    _recorded.words += len(given)
    if _recorded.tables is None:
        return host.to(device)
    assert _recorded.space is not None
    made = _recorded.space[_recorded.words - len(given) : _recorded.words]
    if len(made) < len(given):
        raise RuntimeError("more tables than in the call before")
    _recorded.tables.append((made, host))
    return made


def cut() -> None:
    """Here a recording may be cut into two graphs."""
    if _recorded.cut is not None:
        _recorded.cut()


def counted() -> int:
    """How many words of tables this thread has asked for since it was asked last."""
    words, _recorded.words = _recorded.words, 0
    return words


@contextmanager
def kept_in(
    memory: torch.Tensor | None, space: torch.Tensor, at_cut: Callable[[], None]
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Programs of this thread read their numbers from `memory`, their tables lie in `space`, and they call `at_cut`
    where they may be cut; gives the tables, which remain to be filled."""
    counted()
    _recorded.memory, _recorded.tables, _recorded.space, _recorded.cut = memory, [], space, at_cut
    try:
        yield _recorded.tables
    finally:
        _recorded.memory = _recorded.tables = _recorded.space = _recorded.cut = None
