"""CUDA graphs: a program's launches recorded once, and replayed with one call.

The first call runs as it is (libraries choose algorithms and take their memory), the second is recorded. Inputs that
lay at the same address in both are expected there again (parameters, buffers, optimizer states, what another recorded
program returned); others are copied to memory of the recording. Each recording has a pool of memory of its own: in a
common one, the temporaries of one would take turns with the results of another, which may be in use when it replays.

What a recording returns lies in its pool, so the next replay would overwrite it. Each call hands out tensors of its
own over that memory. Where one of the last call is still in use at the next, the program is recorded anew, in other
memory, and that result is copied for the caller from then on. What is saved for a backward pass is never copied: until
that has run, further forward passes run without the recording.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dovetail.ir.launch import GraphFacts
from dovetail.runtime.gpu import numbers

Call = Callable[..., Sequence[Any]]
#: Recordings of one program: for sizes, and for numbers that are part of it.
MOST = 8
#: Times that a program is recorded anew because an input has moved.
MOVES = 3

_owned: set[int] = set()  # addresses of results in recordings' pools


@dataclass
class _Result:
    """How one result is handed out: from the pool, or one of the caller's tensors."""

    metadata: dict[str, Any] | None = None
    given: int | None = None  # the place of the input that it is
    constant: Any = None
    copied: bool = False
    last: StorageWeakRef | None = None  # what the last call handed out

    def alive(self) -> bool:
        return self.last is not None and not self.last.expired()


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    places: dict[int, int]  # inputs that must be at this address
    targets: dict[int, torch.Tensor]  # inputs that are copied, and where to
    memory: torch.Tensor | None  # of numbers
    results: list[_Result]
    kept: list[Any]  # results, and other memory that replays rely on
    moves: int = 0
    owned: frozenset[int] = field(default_factory=frozenset)  # inputs that another recording returned


class Recorder:
    """A callable of the program's inputs; `call` runs the program."""

    def __init__(self, call: Call, facts: GraphFacts, report: Callable[[str], None]) -> None:
        self.call, self.facts, self.report = call, facts, report
        self.seen: dict[Any, dict[int, int]] = {}  # addresses of the first call, by key
        self.recordings: dict[Any, _Recording] = {}
        self.lock = threading.Lock()
        self.off = False
        self.words = 0  # of tables that a call takes
        self.copied: set[int] = set()  # results that callers keep for longer than a call
        self.retired: list[_Recording] = []  # whose results are still in use

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self.off or torch.cuda.is_current_stream_capturing() or not self.lock.acquire(blocking=False):
            return self.call(*inputs)
        try:
            return self.run(inputs)
        finally:
            self.lock.release()

    def run(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        facts = self.facts
        key: Any = tuple(inputs[k] for k in facts.fixed)
        if facts.dynamic:
            key = key, tuple((i.shape, i.stride()) if isinstance(i, torch.Tensor) else i for i in inputs)
        recording = self.recordings.get(key)
        if recording is None:
            return self.first(key, inputs)
        places = recording.places
        for k, address in places.items():
            if inputs[k].data_ptr() != address:
                return self.moved(key, recording, inputs)
        busy = [k for k, result in enumerate(recording.results) if result.alive()]
        if not busy:
            return self.replay(recording, inputs)
        if busy[-1] >= len(recording.results) - facts.saved:
            return self.call(*inputs)
        self.copied.update(busy)
        self.retired.append(recording)
        return self.record(key, inputs, set(places))

    # ------------------------------------------------------------ before there is a recording

    def first(self, key: Any, inputs: tuple[Any, ...]) -> Sequence[Any]:
        before = self.seen.get(key)
        if before is None:
            if len(self.seen) >= MOST:
                return self.call(*inputs)
            self.seen[key] = _addresses(inputs)
            numbers.counted()
            results = self.call(*inputs)
            self.words = numbers.counted()
            return results
        same = {k for k, address in _addresses(inputs).items() if before.get(k) == address or address in _owned}
        return self.record(key, inputs, same)

    def moved(self, key: Any, recording: _Recording, inputs: tuple[Any, ...]) -> Sequence[Any]:
        """An input is somewhere else: what another program returned without its recording, or it will move again."""
        there = _addresses(inputs)
        changed = {k for k, address in recording.places.items() if there[k] != address}
        if changed & recording.owned or recording.moves >= MOVES:
            return self.call(*inputs)
        if any(result.alive() for result in recording.results):
            return self.call(*inputs)
        del self.recordings[key]
        results = self.record(key, inputs, set(recording.places) - changed)
        if key in self.recordings:
            self.recordings[key].moves = recording.moves + 1
        return results

    # ------------------------------------------------------------ recording

    def record(self, key: Any, inputs: tuple[Any, ...], same: set[int]) -> Sequence[Any]:
        generator = torch.cuda.default_generators[_index(self.facts.device)]
        before = generator.clone_state()
        try:
            recording = self.recorded(inputs, same)
        except (RuntimeError, NotImplementedError) as error:
            self.off = True
            self.report(f"no CUDA graph: {_first_line(error)}")
            generator.graphsafe_set_state(before)  # a recording that failed leaves it waiting for the end
            torch.cuda.synchronize(self.facts.device)
            return self.call(*inputs)
        for k in self.copied:
            recording.results[k].copied = True
        self.recordings[key] = recording
        self.retired = [old for old in self.retired if any(result.alive() for result in old.results)]
        return self.replay(recording, inputs)

    def recorded(self, inputs: tuple[Any, ...], same: set[int]) -> _Recording:
        device = self.facts.device
        if any(isinstance(i, torch.Tensor) and i.device != device for i in inputs):
            raise RuntimeError("an input is on another device")
        graph, stream = torch.cuda.CUDAGraph(), _stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
            memory = numbers.words([inputs[k] for k in self.facts.numbers]).to(device) if self.facts.numbers else None
            targets = {k: _like(i) for k, i in enumerate(inputs) if isinstance(i, torch.Tensor) and k not in same}
            given = [targets.get(k, i) for k, i in enumerate(inputs)]
            space = torch.empty(self.words, dtype=torch.int64, device=device)
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                with numbers.kept_in(memory, space) as tables:
                    found = self.call(*given)
            finally:
                graph.capture_end()
            for table, words in tables:
                table.copy_(words)
        torch.cuda.current_stream(device).wait_stream(stream)
        places = {k: i.data_ptr() for k, i in enumerate(inputs) if k in same}
        results = [_result(value, given) for value in found]
        kept = [v for v, r in zip(found, results, strict=True) if r.metadata is not None]
        _owned.update(v.data_ptr() for v in kept)
        kept.append(space)
        owned = frozenset(k for k, address in places.items() if address in _owned)
        return _Recording(graph, places, targets, memory, results, kept, owned=owned)

    # ------------------------------------------------------------ replaying

    def replay(self, recording: _Recording, inputs: tuple[Any, ...]) -> Sequence[Any]:
        facts = self.facts
        with torch.no_grad():
            if recording.targets:
                torch._foreach_copy_(list(recording.targets.values()), [inputs[k] for k in recording.targets])
            if recording.memory is not None:
                recording.memory.copy_(numbers.words([inputs[k] for k in facts.numbers]), non_blocking=True)
            recording.graph.replay()
            moved = [k for k in facts.written if k in recording.targets]
            if moved:
                torch._foreach_copy_([inputs[k] for k in moved], [recording.targets[k] for k in moved])
        still = [inputs[k] for k in facts.written if k not in recording.targets]
        if still:
            torch._C._increment_version(still)
        return tuple(_handed_out(r, inputs) for r in recording.results)


def _addresses(inputs: Sequence[Any]) -> dict[int, int]:
    return {k: i.data_ptr() for k, i in enumerate(inputs) if isinstance(i, torch.Tensor)}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _like(tensor: torch.Tensor) -> torch.Tensor:
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
        raise RuntimeError("an input's elements share memory")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _result(value: Any, given: list[Any]) -> _Result:
    if not isinstance(value, torch.Tensor):
        return _Result(constant=value)
    for k, tensor in enumerate(given):
        if tensor is value:
            return _Result(given=k)
    storage = value.untyped_storage()
    if any(isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == storage.data_ptr() for t in given):
        raise RuntimeError("a result is a view of an input")
    return _Result({
        "nbytes": storage.nbytes(), "data_ptr": storage.data_ptr(), "size": value.shape, "stride": value.stride(),
        "dtype": value.dtype, "device": value.device, "storage_offset": value.storage_offset(),
    })  # fmt: skip


def _handed_out(result: _Result, inputs: Sequence[Any]) -> Any:
    metadata = result.metadata
    if metadata is None:
        return result.constant if result.given is None else inputs[result.given]
    storage = torch._C._construct_storage_from_data_pointer(
        metadata["data_ptr"], metadata["device"], metadata["nbytes"]
    )
    tensor = torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata(metadata, storage)
    if result.copied:
        return tensor.clone()
    result.last = StorageWeakRef(storage)
    return tensor
