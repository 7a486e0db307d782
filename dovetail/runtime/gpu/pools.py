"""Memory of recorded programs (`graphs.py`), and programs that take turns in it.

A replay writes where its recording did: to temporaries, copied inputs and results. In a pool of its own nothing else
lies there. Where the layers of a model are compiled one by one, there are many pools: with a Llama of sixteen layers
under `fully_shard` they held 7.8 GB, beside 12.8 without recordings. These are gradients and temporaries, of which
eager mode holds one layer's at a time, and copies of the parameters, which are gathered elsewhere in each step. So the
forward programs of a device that are differentiated share a pool, and so do backward programs: what one is done with is
given to the next one that is recorded. Any other program has a pool for its recordings.

Whether a recording may be replayed is then a question of what is in use. Results that were when it was made lie apart
from all that it writes to. Any other result of the pool may lie in its way; as long as one is in use, it is not
replayed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from functools import cache
from sys import getrefcount
from typing import Any
from weakref import finalize

import torch

_REFERENCES = torch._C._storage_Use_Count
_numbers = itertools.count()


class Pooled:
    """A result in a pool, with a storage that does not own the memory: nobody can give it back, or take more.

    The storage keeps `memory`, so that it lasts as long as it is in use, whatever becomes of the recording: PyTorch's
    own tensor, or without that, when PyTorch may give the place to what is recorded next, a graph of the pool.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self.storage: Any = unowned(value.untyped_storage())
        self.storage.memory = value
        with torch.inference_mode(False):
            self.tensor = over(self.storage, value)

    def made(self) -> torch.Tensor:
        return over(self.storage, self.tensor)


class Handed:
    """What one recording hands out of its pool, by the place among its results. `graph` is its own."""

    def __init__(self, pooled: Mapping[int, Pooled], graph: Any) -> None:
        self.pooled, self.graph = pooled, graph
        self.number = next(_numbers)
        self.storages = [each.storage for each in pooled.values()]
        self.implementations = [storage._cdata for storage in self.storages]
        self.alone = self.references()

    def references(self) -> list[tuple[int, int]]:
        """To each storage: tensors refer to the implementation, Python to an object that is it."""
        return list(zip(map(_REFERENCES, self.implementations), map(getrefcount, self.storages), strict=True))

    def busy(self) -> set[int]:
        """The places of results that an earlier call returned, and that are in use."""
        references = self.references()
        if references == self.alone:
            return set()
        counts = zip(self.pooled, references, self.alone, strict=True)
        return {k for k, now, alone in counts if now != alone}

    def known(self) -> bool:
        """Does PyTorch know of all memory that is in use?"""
        return all(self.pooled[k].storage.memory is not self.graph for k in self.busy())

    def give_back(self) -> tuple[int, ...]:
        """Leaves to PyTorch what is not in use; returns the places of that."""
        free = tuple(self.pooled.keys() - self.busy())
        for k in free:
            self.pooled[k].storage.memory = self.graph
        return free


class Pool:
    """Where recordings lie. `out` is what may be in use of what they have handed out, with the stream of the replay.

    The next replay is `behind` these streams: of the last one, and where what lay in its way may still be read. `lock`:
    for one thread at a time.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.handle: Any = None
        self.living: dict[Handed, None] = {}  # of recordings that are not gone
        self.out: dict[Handed, tuple[int, Any]] = {}
        self.behind: dict[int, Any] = {}  # by CUDA's number: streams of PyTorch's are slow to compare

    def has_room(self) -> bool:
        """May a program be recorded here: does PyTorch know of all memory that is in use?"""
        return all(handed.known() for handed in tuple(self.out))

    def given_back(self) -> dict[int, tuple[int, ...]]:
        """Gives back to PyTorch what is not in use. Returns that, which may lie in the way of what is recorded next:
        `unknown`, places by the number of what was handed out."""
        self.behind.update(self.out.values())
        for handed in tuple(self.out):
            if not handed.busy():
                self.out.pop(handed, None)
        return {handed.number: handed.give_back() for handed in {**self.living, **self.out}}

    def name(self) -> Any:
        """PyTorch's; None if there is no pool that a recording keeps."""
        return self.handle if self.living else None

    def add(self, recording: Any, handle: Any) -> None:
        self.handle = handle
        self.living[recording.handed] = None
        finalize(recording, self.leave, recording.handed).atexit = False

    def leave(self, handed: Handed) -> None:
        """Its recording is gone."""
        self.living.pop(handed)
        if not self.living:  # nor will there be a replay
            self.out.clear()

    def is_clear(self, recording: Any) -> bool:
        """Is nothing of others in use that may lie in its way?"""
        for handed, (number, stream) in tuple(self.out.items()):
            places = recording.unknown.get(handed.number, handed.pooled)
            if handed is recording.handed or (not places and handed in self.living):
                continue
            busy = handed.busy()
            if not busy.isdisjoint(places):
                return False
            self.behind[number] = stream
            if not busy:
                self.out.pop(handed, None)
        return True

    def begin(self, recording: Any, stream: Any) -> None:
        """It will be replayed on the stream, and its results are handed out."""
        now = stream.cuda_stream, stream
        self.behind.update((now, self.out.get(recording.handed, now)))
        if len(self.behind) > 1:
            for number, other in self.behind.items():
                if number != now[0]:
                    stream.wait_stream(other)
            self.behind = dict((now,))
        self.out[recording.handed] = now


@cache
def taken_in_turns(device: int, forward: bool) -> Pool:
    """The one of the device's forward programs that are differentiated, or of backward programs."""
    return Pool()


def unowned(storage: torch.UntypedStorage) -> Any:
    """Another storage of the same memory."""
    return torch._C._construct_storage_from_data_pointer(storage.data_ptr(), storage.device, storage.nbytes())


def over(storage: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of a storage that is laid out as another one."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
