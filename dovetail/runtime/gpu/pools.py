"""Memory of recorded programs (`graphs.py`), and programs that take turns in it.

A replay writes where its recording did: to temporaries, copied inputs and results. In a pool of its own nothing else
lies there. Where the layers of a model are compiled one by one, there are many pools: with a Llama of sixteen layers
under `fully_shard` they held 7.8 GB, beside 12.8 without recordings. These are gradients and temporaries, of which
eager mode holds one layer's at a time, and copies of the parameters, which are gathered elsewhere in each step. So the
halves of training steps on a device share a pool: what one is done with is given to the next one that is recorded. Any
other program has a pool for its recordings.

A backward program is recorded where its forward pass was, and writes over what that has saved, which nothing else
reads (`Overwritten`): eager mode too lets go of an activation when it has its gradients. They may be in use when the
next forward pass begins, as where they are set to zero or added up. From then on the forward programs that there are
keep what they have saved: they are recorded anew in a pool of their own kind, and so are their backward programs.

Whether a recording may be replayed is then a question of what is in use. Results that were when it was made lie apart
from all that it writes to. Any other result of the pool may lie in its way; as long as one is in use, it is not
replayed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from sys import getrefcount
from typing import Any
from weakref import WeakSet, WeakValueDictionary, finalize

import torch

_REFERENCES = torch._C._storage_Use_Count
_numbers = itertools.count()
#: What `references_of` counts of an object that is in one list alone.
(ONE,) = map(getrefcount, [object()])


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
        self.indices = {place: k for k, place in enumerate(pooled)}
        self.places = dict(zip(self.implementations, pooled, strict=True))
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

    def place_of(self, tensor: torch.Tensor) -> int | None:
        """The place of the result that it is, as it was handed out."""
        place = self.places.get(tensor.untyped_storage()._cdata)
        return None if place is None or _layout(self.pooled[place].tensor) != _layout(tensor) else place

    def held_once(self, places: Collection[int]) -> set[int]:
        """Those of the results that one tensor shows to others, and nothing else."""
        now, found = self.references(), set[int]()
        for place in places:
            k = self.indices[place]
            tensors, python = self.alone[k]
            if now[k] == (tensors + 1, python):
                found.add(place)
        return found

    def give_back(self) -> tuple[int, ...]:
        """Leaves to PyTorch what is not in use; returns the places of that."""
        free = tuple(self.pooled.keys() - self.busy())
        for k in free:
            self.pooled[k].storage.memory = self.graph
        return free


class Overwritten:
    """What a backward program writes over: `places` of results that a forward program has saved, by input."""

    def __init__(self, handed: Handed, places: Mapping[int, int]) -> None:
        self.handed, self.places = handed, places

    def is_last(self, counts: Sequence[int]) -> bool:
        """Does nothing but the call hold them? `counts`: of its inputs, see `references_of`."""
        if not counts or any(counts[k] != ONE for k in self.places):
            return False
        return len(self.handed.held_once(self.places.values())) == len(self.places)

    def others(self, inputs: Sequence[Any]) -> list:
        """None in the places of what is written over."""
        return [None if k in self.places else value for k, value in enumerate(inputs)]

    def given(self) -> dict[int, Any]:
        """Tensors that own the memory, by input: where the last of them is let go, PyTorch gives it to others."""
        owning = {}
        for k, place in self.places.items():
            storage = self.handed.pooled[place].storage
            owning[k], storage.memory = storage.memory, self.handed.graph
        return owning


class Pool:
    """Where recordings lie. `out` is what may be in use of what they have handed out, with the stream of the replay.

    The next replay is `behind` these streams: of the last one, and where what lay in its way may still be read. `lock`:
    for one thread at a time. `saved`: by address, what `forward` programs have saved for backward programs, which may
    write over it. Recordings of another `age` are to be made anew.
    """

    age = 0

    def __init__(self, lock: Any = None) -> None:
        self.lock = lock or threading.Lock()
        self.saved: WeakValueDictionary[int, Handed] = WeakValueDictionary()
        self.forward: WeakSet[Any] = WeakSet()
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

    def taken(self, inputs: Sequence[Any], counts: Sequence[int]) -> Overwritten | None:
        """Which inputs of a program that will be recorded here it may write over: those of one forward pass."""
        if not self.has_room():
            return None
        found: dict[Handed, dict[int, int]] = {}
        for k, value in enumerate(inputs):
            known = self.knows(value) if counts[k] == ONE else None
            if known is not None:
                found.setdefault(known[0], {})[k] = known[1]
        for handed, places in found.items():
            once = handed.held_once(places.values())
            found[handed] = {k: place for k, place in places.items() if place in once}
        most = max(found, key=lambda each: len(found[each]), default=None)
        return Overwritten(most, found[most]) if most is not None and found[most] else None

    def knows(self, value: Any) -> tuple[Handed, int] | None:
        """Who has saved it, and its place."""
        handed = self.saved.get(value.data_ptr()) if isinstance(value, torch.Tensor) else None
        place = None if handed is None else handed.place_of(value)
        return None if handed is None or place is None else (handed, place)

    def saves(self, forward: Any, handed: Handed, places: Sequence[int]) -> None:
        """These results are for a backward program alone."""
        self.forward.add(forward)
        for place in places:
            if place in handed.pooled:
                self.saved[handed.pooled[place].tensor.data_ptr()] = handed

    def keep(self) -> list[Any]:
        """No longer may what has been saved so far be written over; of which programs it is."""
        forward = list(self.forward)
        self.forward.clear()
        self.saved.clear()
        return forward

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


def references_of(values: Sequence[Any]) -> list[int]:
    """Python's, to each value of a list."""
    return list(map(getrefcount, values))


@cache
def taken_in_turns(device: int, which: str) -> Pool:
    """The one of the device's halves of training steps (`steps`); or of `forward` or `backward` programs alone."""
    return Pool(_lock(device))


@cache
def _lock(device: int) -> Any:
    return threading.Lock()


def _layout(tensor: torch.Tensor) -> tuple:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def unowned(storage: torch.UntypedStorage) -> Any:
    """Another storage of the same memory."""
    return torch._C._construct_storage_from_data_pointer(storage.data_ptr(), storage.device, storage.nbytes())


def over(storage: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of a storage that is laid out as another one."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
