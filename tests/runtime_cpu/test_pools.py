"""Programs that take turns in a pool of memory."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from dovetail.runtime.gpu.pools import Handed, Pool, Pooled
from tests.runtime_cpu.simulated import BLOCKS, Memory, Stream

STREAM = Stream()


class Graph:
    pass


class Recording:
    """Of a program with so many temporaries and results; a replay writes a number to all of their blocks."""

    def __init__(self, pool: Pool, memory: Memory, temporaries: int, results: int) -> None:
        self.unknown, self.pool = pool.given_back(), pool
        self.memory, self.graph = pool.name() or memory, Graph()
        self.memory.graphs.add(self.graph)
        taken = [self.memory.take() for _ in range(temporaries + results)]
        self.blocks = list(map(self.memory.block, taken))
        self.handed = Handed({k: Pooled(tensor) for k, tensor in enumerate(taken[temporaries:])}, self.graph)
        pool.add(self, self.memory)

    def replay(self, number: int, stream: Stream = STREAM) -> list[torch.Tensor]:
        self.pool.begin(self, stream)
        for block in self.blocks:
            self.memory.write(block, number, stream)
        return [pooled.tensor.data for pooled in self.handed.pooled.values()]

    def may_replay(self) -> bool:
        return not self.handed.busy() and self.pool.is_clear(self)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_what_one_is_done_with_is_the_next_ones(pool: Pool, memory: Memory) -> None:
    """Backward passes of layers: of each, the gradient that the next one reads is in use, and the others were."""
    layers: list[Recording] = []
    given: list[torch.Tensor] = []
    for number in range(5):
        assert pool.has_room()
        layers.append(Recording(pool, memory, temporaries=3, results=4))
        given = layers[-1].replay(number)[:1]
    assert BLOCKS - len(memory.free) <= 2 * 7
    del given
    for number, layer in enumerate(layers):
        assert layer.may_replay()
        given = layer.replay(number)[:1]
    assert not layers[0].may_replay()  # what the last layer gave may lie where the first one writes
    del given
    assert layers[0].may_replay()


def test_results_that_were_in_use_lie_apart(pool: Pool, memory: Memory) -> None:
    """Forward passes of layers, whose results are in use until a backward pass: each is there when the next begins."""
    layers, kept = [], []
    for number in range(4):
        layers.append(Recording(pool, memory, temporaries=2, results=3))
        kept.append(layers[-1].replay(number))
    kept.clear()
    for number, layer in enumerate(layers):
        assert layer.may_replay()
        kept.append(layer.replay(number))
    assert [tensor.item() for tensors in kept for tensor in tensors] == [n for n in range(4) for _ in range(3)]


def test_no_room_where_pytorch_does_not_know_what_is_in_use(pool: Pool, memory: Memory) -> None:
    one, other = Recording(pool, memory, 1, 1), None
    kept = one.replay(1)
    assert pool.has_room()
    del kept
    other = Recording(pool, memory, 1, 1)
    kept = one.replay(2)
    assert not pool.has_room() and not other.may_replay()
    del kept
    assert pool.has_room() and other.may_replay()


def test_a_recording_that_is_gone_leaves_what_is_in_use(pool: Pool, memory: Memory) -> None:
    one: Any = Recording(pool, memory, 1, 2)
    two: Any = Recording(pool, memory, 1, 1)
    kept = one.replay(1)[:1]
    del one
    assert not two.may_replay() and kept[0].item() == 1
    del kept
    assert two.may_replay() and not pool.out
    kept = two.replay(2)
    del two
    assert pool.name() is None and not pool.out  # there is nothing that may overwrite it
    Recording(pool, Memory(), 3, 1).replay(3)
    assert kept[0].item() == 2


def test_memory_in_use_outlives_all_recordings(pool: Pool, memory: Memory) -> None:
    """Gradients that were given back once and are in use again, of programs that are all recorded anew elsewhere."""
    one: Any = Recording(pool, memory, 1, 1)
    one.replay(1)
    two: Any = Recording(pool, memory, 1, 1)
    kept = one.replay(2)
    assert not pool.has_room()
    del one, two
    memory.empty_cache()
    assert kept[0].item() == 2
    del kept
    memory.empty_cache()
    assert (memory.blocks == -1).all()


def test_what_is_read_elsewhere_is_waited_for(pool: Pool, memory: Memory) -> None:
    """Two threads: a result is read in one, after the other has replayed something else, and let go."""
    one, two, three = (Recording(pool, memory, 1, 1) for _ in range(3))
    here, there = Stream(), Stream()
    (kept,) = one.replay(1, here)
    Recording(pool, memory, 0, 1).replay(2, there)
    memory.read(kept, here)
    del kept
    assert two.may_replay()
    two.replay(3, there)
    three.replay(4, here)
    assert [*pool.behind.values()] == [here] and two.may_replay()


def test_a_part_that_is_read_elsewhere_is_waited_for(pool: Pool, memory: Memory) -> None:
    here, there = Stream(), Stream()
    one = Recording(pool, memory, 0, 2)
    kept = one.replay(1, here)[0]
    two = Recording(pool, memory, 1, 1)  # where the other result was
    two.replay(2, there)
    del kept
    kept, read = one.replay(3, here)
    Recording(pool, memory, 0, 1).replay(4, there)
    memory.read(read, here)
    del read
    assert two.may_replay()
    two.replay(5, there)
    assert kept.item() == 3


@pytest.mark.parametrize("seed", range(12))
def test_nothing_in_use_is_written_to(seed: int, memory: Memory, pool: Pool) -> None:
    """Programs are recorded, replayed on two streams and dropped, and results kept and let go, at random."""
    choose = random.Random(seed)
    streams = Stream(), Stream()
    made: list[Recording] = []
    kept: list[tuple[int, torch.Tensor, Memory, Stream]] = []
    memories, replayed = [memory], 0

    def replay(recording: Recording, number: int) -> None:
        stream = choose.choice(streams)
        for tensor in recording.replay(number, stream):
            kept.append((number, tensor, recording.memory, stream))

    for number in range(250):
        current = pool.name() or memories[-1]
        if not made or choose.random() < 0.1 and len(current.free) > BLOCKS // 2:
            into = pool if pool.has_room() else Pool()
            if into.name() is None:
                memories.append(Memory())
            made.append(Recording(into, memories[-1], choose.randint(0, 3), choose.randint(1, 4)))
            replay(made[-1], number)
        at = choose.randrange(len(made))
        if made[at].may_replay():
            replayed += 1
            replay(made[at], number)
        for _ in range(choose.randint(0, len(kept))):
            _, tensor, where, stream = kept.pop(choose.randrange(len(kept)))
            where.read(tensor, stream)
            del tensor
        if choose.random() < 0.1:
            del made[choose.randrange(len(made)) if choose.random() < 0.8 else 0 :]
        for each in memories:
            each.empty_cache()
        assert all(tensor.item() == written for written, tensor, *_ in kept), number
    assert replayed > 30
