"""CUDA graphs: a program's launches recorded once, and replayed with one call.

The first call runs as it is, on the stream of recordings (libraries choose algorithms and take their memory: cuBLAS 32
MiB for each stream), the second is recorded. Inputs that lay at the same address in both are expected there again
(parameters, buffers, optimizer states, what another recorded program returned); others are copied to memory of the
recording. Where one program serves equal layers, each set of parameters has calls and recordings of its own.

What a recording returns lies in its pool, so the next replay would overwrite it. Each call hands out tensors of its
own over that memory, those of one result over one storage: references to it tell whether the result is in use. Where
one of the last call is still in use at the next, as in `out = model(x)` in a loop, it is copied from then on if it is
small, and the program is recorded anew, for nobody knows how long it will be in use. Big ones would take their memory
twice: then such a call runs without the recording, as do forward passes while what one saved for its backward pass is
in use.

Recordings of one program take turns in a pool of memory, halves of training steps in a common one (`pools.py`).

A program that gives its results in buckets is recorded as a whole, and replayed bucket by bucket. One that raises where
a value is not as it must be is cut there: each replay looks at the value before it goes on.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from operator import itemgetter
from typing import Any

import torch
from torch.autograd import profiler

from dovetail.ir.launch import GraphFacts
from dovetail.ir.profiled import region
from dovetail.ir.sharded import gathered
from dovetail.ops.own.check import put_off
from dovetail.runtime.call.overlap import unmoved
from dovetail.runtime.call.parameter_parts import is_of_a_parameter
from dovetail.runtime.gpu import device_scalars
from dovetail.runtime.gpu.parameter_sets import ParameterSet
from dovetail.runtime.gpu.pools import Overwritten, Pool, over, references_of, taken_in_turns, unowned
from dovetail.runtime.gpu.recordings import (
    OWNED,
    Recording,
    Unfinished,
    addresses_of,
    handed_out,
    lying_still,
    recorded_result,
)  # fmt: skip

Call = Callable[..., Sequence[Any]]
#: Recordings of one program and set of parameters: for sizes, and for numbers that are part of it.
MOST = 8
#: Sets of parameters that a program has recordings for.
SETS = 256
#: Results that callers keep are copied if they are at most this part of the program's inputs and results,
COPIED = 1 / 16
#: or at most so many bytes.
SMALL = 4 << 20
#: Times that a program is recorded anew because an input has moved.
MOVES = 3

#: For one thread at a time on a device's stream of recordings: what another did there would be recorded, and not done.
_ALONE: dict[torch.device, Any] = defaultdict(threading.RLock)
_NOTHING = nullcontext()


class Recorder:
    """A callable of the program's inputs; `call` runs the program, which profiles show as `title`. `emptying` does
    so as well, with a list of them that it empties."""

    def __init__(
        self, call: Call, facts: GraphFacts, report: Callable[[str], None], title: str = "",
        emptying: Callable[[list], Sequence[Any]] | None = None,
    ) -> None:  # fmt: skip
        self.call, self.facts, self.report, self.title, self.emptying = call, facts, report, title, emptying
        self.parameters: list[int] | None = None  # their places among the inputs
        self.chosen: Callable[[list], tuple] = itemgetter(slice(0))  # them, and one more
        self.sets: dict[tuple[int, ...], ParameterSet] = {}  # by what the parameters are
        self.current, self.good = ParameterSet(None), None  # of the last call, and what `unmoved` gave
        self.over = 0  # sets of parameters that are gone, and had no recording
        self.turns = partial(taken_in_turns, _index(facts.device)) if facts.shares else lambda which: Pool()
        self.steps = self.turns("steps")
        self.pool = self.steps if facts.saved else self.turns("backward")
        self.lock = self.pool.lock
        self.keeps = False  # what it has saved, since gradients would lie there when it is called again
        self.off = False
        self.words = 0  # of tables that a call takes
        self.copied: set[int] = set()  # results that callers keep for longer than a call
        self.counts: list[int] = []  # of references to the inputs of this call, if it is of a list

    def __call__(self, *inputs: Any) -> Any:
        return self.of_list([*inputs])

    def of_list(self, inputs: list) -> Any:
        """Without a recording, `emptying` empties the list; what it alone holds, a recorded program may write over."""
        if self.off or torch.cuda.is_current_stream_capturing() or not self.lock.acquire(blocking=False):
            return self.plain(inputs)
        try:
            self.counts = references_of(inputs) if self.emptying is not None else []
            return self.run(inputs)
        finally:
            self.counts = []
            self.lock.release()

    def plain(self, inputs: list) -> Any:
        """A call without a recording."""
        return self.call(*inputs) if self.emptying is None else self.emptying(inputs)

    def run(self, inputs: list) -> Sequence[Any]:
        facts = self.facts
        key: Any = tuple(inputs[k] for k in facts.fixed)
        if facts.dynamic:
            key = key, tuple((i.shape, i.stride()) for i in inputs if isinstance(i, torch.Tensor))
        good = unmoved() if facts.own else None
        if good is None or good is not self.good:
            self.current, self.good = self.set_of(inputs), good
        own = self.current
        recording = own.recordings.get(key)
        if recording is None:
            return self.first(own, key, inputs)
        if recording.age != recording.pool.age:
            return self.anew(own, key, recording, inputs, lying_still(recording, inputs))
        if (good is None or good is not recording.good) and not recording.is_where_it_was(inputs):
            return self.moved(own, key, recording, inputs)
        recording.good = good
        busy = recording.handed.busy()
        if busy:
            return self.occupied(own, key, recording, busy, inputs)
        if recording.taken is not None and not recording.taken.is_last(self.counts):
            self.report("a call without its CUDA graph: what the forward pass has saved is still in use")
            return self.plain(inputs)
        if recording.pool.is_clear(recording):
            return self.replay(recording, inputs)
        self.report("recorded anew, in other memory: results of other programs are still in use")
        return self.record(own, key, inputs, set(recording.places), self.elsewhere(recording))

    def elsewhere(self, recording: Recording) -> Pool:
        """Where nothing will lie in the way. Gradients may when a step begins: this one will not be the last."""
        if not self.facts.saved or recording.pool is not self.steps or self.keeps:
            return Pool()
        for forward in self.steps.keep():
            forward.keeps = True
        return self.steps

    # ------------------------------------------------------------ sets of parameters

    def set_of(self, inputs: list) -> ParameterSet:
        """The set of parameters of this call."""
        if self.parameters is None:
            self.parameters = [k for k, i in enumerate(inputs) if is_of_a_parameter(i)]
            self.chosen = itemgetter(*self.parameters, slice(0))  # never one alone
        given = self.chosen(inputs)[:-1]
        identity = tuple(map(id, given))
        found = self.sets.get(identity)
        if found is None:
            self.clear()
            found = self.sets[identity] = ParameterSet(given[0] if given else None)
        return found

    def clear(self) -> None:
        """Of sets that are gone. Those that are new in each call are no parameters."""
        self.over += sum(each.is_over() and not each.recordings for each in self.sets.values())
        self.sets = {identity: each for identity, each in self.sets.items() if not each.is_over()}
        if self.over > MOST:
            self.parameters, self.chosen, self.sets, self.over = [], itemgetter(slice(0)), {}, 0

    # ------------------------------------------------------------ when no recording can be replayed

    def first(self, own: ParameterSet, key: Any, inputs: list) -> Sequence[Any]:
        before = own.seen.get(key)
        if before is None:
            if len(own.seen) >= MOST or len(self.sets) > SETS:
                return self.plain(inputs)
            return self.alone(lambda: self.noted(own, key, inputs), inputs)
        there, moving = addresses_of(inputs), gathered()
        still = {k for k, address in there.items() if before.get(k) == address and id(inputs[k]) not in moving}
        still -= self.facts.moving
        owned = {k for k, address in there.items() if address in OWNED}
        return self.record(own, key, inputs, still | owned, self.pool)

    def noted(self, own: ParameterSet, key: Any, inputs: list) -> Sequence[Any]:
        own.seen[key] = addresses_of(inputs)
        torch.cuda.empty_cache()  # of what came before, which the stream of recordings cannot use
        self.words = 0
        return self.aside(inputs)

    def alone(self, call: Callable[[], Sequence[Any]], inputs: list) -> Sequence[Any]:
        """A call that uses the stream of recordings, or one without, while another thread does."""
        lock = _ALONE[self.facts.device]
        if not lock.acquire(blocking=False):
            return self.plain(inputs)
        try:
            return call()
        finally:
            lock.release()

    def aside(self, inputs: list) -> Any:
        """A call on the stream of recordings, which may let go of inputs before it has read them."""
        for value in inputs:
            if isinstance(value, torch.Tensor) and value.device == self.facts.device:
                value.record_stream(_stream(self.facts.device))
        return self.counted(lambda: self.plain(inputs))

    def counted(self, call: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The same; it adds to the words of tables."""
        device = self.facts.device
        device_scalars.counted()
        with aside(device, self.facts.products):
            results = call()
        self.words += device_scalars.counted()
        current = torch.cuda.current_stream(device)
        for result in results:
            if isinstance(result, torch.Tensor) and result.device == device:
                result.record_stream(current)
        return results

    def moved(self, own: ParameterSet, key: Any, recording: Recording, inputs: list) -> Sequence[Any]:
        """An input is somewhere else: what another program returned without its recording, or it will move again."""
        same = lying_still(recording, inputs)
        if not recording.owned <= same or own.moves.get(key, 0) >= MOVES:
            return self.plain(inputs)
        own.moves[key] = own.moves.get(key, 0) + 1
        return self.anew(own, key, recording, inputs, same)

    def anew(self, own: ParameterSet, key: Any, recording: Recording, inputs: list, same: set[int]) -> Sequence[Any]:
        """Recorded again in its pool, if what it is given lies in recordings as before. Where it wrote over what
        PyTorch has given away since, all halves of steps are, from the next forward pass on."""
        if not recording.owned <= same:
            return self.plain(inputs)
        overwritten = () if recording.taken is None else recording.taken.places
        if not any(self.steps.knows(inputs[k]) for k in overwritten) or self.written_over(inputs, same):
            return self.record(own, key, inputs, same, recording.pool)
        if recording.age == recording.pool.age:
            recording.pool.age += 1
            recording.places = {k: address for k, address in recording.places.items() if k in same}
            self.report("a call without its CUDA graph: the next step is recorded anew")
        return self.plain(inputs)

    def occupied(
        self, own: ParameterSet, key: Any, recording: Recording, busy: set[int], inputs: list
    ) -> Sequence[Any]:
        """Results of the call before are in use."""
        pooled = {k: pooled.tensor for k, pooled in recording.handed.pooled.items()}
        size = sum(pooled[k].nbytes for k in busy)
        saved = max(busy) >= len(recording.results) - self.facts.saved
        if saved or size > max(SMALL, COPIED * _bytes((*inputs, *pooled.values()))):
            self.report("a call without its CUDA graph: results of the call before are still in use")
            return self.plain(inputs)
        self.copied |= busy
        return self.anew(own, key, recording, inputs, set(recording.places))

    # ------------------------------------------------------------ recording

    def record(self, own: ParameterSet, key: Any, inputs: list, same: set[int], pool: Pool) -> Sequence[Any]:
        """Records the program, in the pool if there is room, and runs it."""
        return self.alone(lambda: self.record_alone(own, key, inputs, same, pool), inputs)

    def record_alone(self, own: ParameterSet, key: Any, inputs: list, same: set[int], pool: Pool) -> Sequence[Any]:
        generator = torch.cuda.default_generators[_index(self.facts.device)]
        state = generator.clone_state()
        torch.cuda.empty_cache()  # of calls without a recording, which has memory of its own
        try:
            recording = self.recorded(inputs, *self.place(inputs, same, pool))
        except (RuntimeError, NotImplementedError) as error:
            self.off = True
            self.report(f"no CUDA graph: {(str(error).strip() or type(error).__name__).splitlines()[0]}")
            generator.graphsafe_set_state(state)  # a recording that failed leaves it waiting for the end
            torch.cuda.synchronize(self.facts.device)
            torch.cuda.empty_cache()  # of what was recorded
            return self.plain(inputs)
        for k in self.copied:
            recording.results[k].copied = True
        own.recordings[key] = recording
        return self.replay(recording, inputs)

    def place(self, inputs: list, same: set[int], pool: Pool) -> tuple[set[int], Pool, Overwritten | None]:
        """Which inputs stay where they are; where it is recorded, in the pool if there is room; and what it may write
        over there. Then small gradients are copied: wherever they will be, it is not recorded again."""
        taken = self.written_over(inputs, same) if pool in (self.pool, self.steps) else None
        if taken is not None:
            moving = same.difference(self.parameters or ())
            small = {k for k in moving if inputs[k].nbytes <= SMALL and inputs[k].data_ptr() not in OWNED}
            return same - small, self.steps, taken
        if pool is self.steps and (self.keeps or not self.facts.saved):
            pool = self.turns("forward" if self.facts.saved else "backward")
        return same, pool if pool.has_room() else Pool(), None

    def written_over(self, inputs: list, same: set[int]) -> Overwritten | None:
        """What the program may write over."""
        if not self.counts:
            return None
        return self.steps.taken([i if k in same else None for k, i in enumerate(inputs)], self.counts)

    def recorded(self, inputs: list, same: set[int], pool: Pool, taken: Overwritten | None) -> Recording:
        device = self.facts.device
        if any(isinstance(i, torch.Tensor) and i.device != device for i in inputs):
            raise RuntimeError("an input is on another device")
        unknown, stream = pool.given_back(), _stream(device)
        graphs = Unfinished(pool.name())
        if self.facts.products:
            _take_workspace(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
            numbers = [inputs[k] for k in self.facts.numbers]
            memory = device_scalars.words(numbers).to(device) if numbers else None
            space = torch.empty(self.words, dtype=torch.int64, device=device)
            graphs.begin()
            try:  # inputs are copied right before a replay, to memory of the pool
                targets = {k: _like(i) for k, i in enumerate(inputs) if isinstance(i, torch.Tensor) and k not in same}
                given = [targets.get(k, i) for k, i in enumerate(inputs)]
                with device_scalars.kept_in(memory, space, graphs.cut) as tables, put_off(graphs.check):
                    found = self.results(given, graphs, taken)
            finally:
                graphs.end()
            for table, words in tables:
                table.copy_(words)
        torch.cuda.current_stream(device).wait_stream(stream)
        places = {k: i.data_ptr() for k, i in enumerate(inputs) if k in same}
        others = given if taken is None else taken.others(given)
        results = [recorded_result(value, others) for value in found]
        copies = {k: over(unowned(target.untyped_storage()), target) for k, target in targets.items()}
        told = memory, results, pool, unknown, space, graphs.ends, graphs.checks, taken, pool.age
        recording = Recording(graphs.made, places, copies, *told)
        pool.add(recording, graphs.made[0].pool())
        if pool is self.steps and self.facts.saved:
            pool.saves(self, recording.handed, range(len(results) - self.facts.saved, len(results)))
        return recording

    def results(self, given: list, graphs: Unfinished, taken: Overwritten | None = None) -> Sequence[Any]:
        """Of the program, which is being recorded."""
        owning = {} if taken is None else taken.given()
        return self.plain([owning.pop(k, value) for k, value in enumerate(given)])

    # ------------------------------------------------------------ replaying

    def replay(self, recording: Recording, inputs: list) -> Any:
        self.begin(recording, inputs)
        self.launch(recording)
        self.end(recording, inputs)
        return tuple(handed_out(recording.results, inputs))

    def begin(self, recording: Recording, inputs: list) -> None:
        facts = self.facts
        recording.pool.begin(recording, torch.cuda.current_stream(facts.device))
        with torch.no_grad():
            if recording.targets:
                torch._foreach_copy_(list(recording.targets.values()), [inputs[k] for k in recording.targets])
            if recording.memory is not None:
                recording.memory.copy_(device_scalars.words([inputs[k] for k in facts.numbers]), non_blocking=True)

    def launch(self, recording: Recording, begin: int = 0, end: int | None = None) -> None:
        """The graphs between the two places."""
        with region(self.title) if profiler._is_profiler_enabled else _NOTHING:
            for place, graph in enumerate(recording.graphs[begin:end], begin + 1):
                graph.replay()
                for check in recording.checks.get(place, ()):
                    check()

    def end(self, recording: Recording, inputs: list) -> None:
        written = self.facts.written
        moved = [k for k in written if k in recording.targets]
        if moved:
            with torch.no_grad():
                torch._foreach_copy_([inputs[k] for k in moved], [recording.targets[k] for k in moved])
        still = [inputs[k] for k in written if k not in recording.targets]
        if still:
            torch._C._increment_version(still)


def _bytes(values: Sequence[Any]) -> int:
    return sum(v.nbytes for v in values if isinstance(v, torch.Tensor))


@contextmanager
def aside(device: torch.device, products: bool) -> Iterator[None]:
    """On the stream of recordings, in turn with the current one. `products`: cuBLAS will be called."""
    stream, current = _stream(device), torch.cuda.current_stream(device)
    with _ALONE[device]:
        if products:
            _take_workspace(device)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            current.wait_stream(stream)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@cache
def _pool(device: torch.device) -> Any:
    with torch.cuda.device(device):
        return torch.cuda.MemPool()


def _take_workspace(device: torch.device) -> None:
    """Has cuBLAS and cuBLASLt take their memory for this thread and the stream of recordings, which will go on to use
    it, in a pool that is never given back. Whoever asked them to let go of it since the last time, they take it again.
    PyTorch calls cuBLASLt for sums with a row, where matrices have more than one row and column."""
    with torch.no_grad(), torch.cuda.use_mem_pool(_pool(device), device), torch.cuda.stream(_stream(device)):
        square = torch.ones(16, 16, device=device)
        torch.addmm(square[0], torch.mm(square, square), square)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _like(tensor: torch.Tensor) -> torch.Tensor:
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
        raise RuntimeError("an input's elements share memory")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
