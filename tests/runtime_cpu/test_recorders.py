"""Recorders of halves of training steps, on a device whose graphs run the program again where it was recorded."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import dovetail
from dovetail import assembly, building
from dovetail.ir.devices import traits
from dovetail.ir.launch import GraphFacts
from dovetail.runtime.gpu import graphs, pools
from dovetail.runtime.gpu.graphs import Recorder
from dovetail.runtime.gpu.pools import over, unowned
from dovetail.runtime.gpu.recordings import OWNED
from tests.runtime_cpu.simulated import BLOCKS, CPU, Memory, Stream

STREAM = Stream()
LAYERS = 4
INTO: list[Memory] = []  # of the recording under way


class Graph:
    memory: Memory
    again: Callable[[], None]

    def capture_begin(self, *pool: Any, capture_error_mode: str) -> None:
        (self.memory,) = pool or (Memory(),)
        self.memory.graphs.add(self)
        INTO[:] = [self.memory]

    def capture_end(self) -> None:
        INTO.clear()

    def replay(self) -> None:
        self.again()

    def pool(self) -> Memory:
        return self.memory


class Simulated(Recorder):
    """A program that writes to temporaries before it reads its inputs, and to results when it has let these go."""

    def aside(self, inputs: list) -> Any:
        return self.plain(inputs)

    def results(self, given: list, made: Any, taken: Any = None) -> Any:
        (memory,) = INTO
        places = [over(unowned(tensor.untyped_storage()), tensor) for tensor in given]
        owning = taken.given() if taken is not None else {}
        temporaries = [memory.block(memory.take()) for _ in range(2)]
        owning.clear()
        found = [memory.take() for _ in self.call(*given)]
        blocks = list(map(memory.block, found))

        def again() -> None:
            for block in temporaries:
                memory.write(block, -2, STREAM)
            for block, value in zip(blocks, [value.item() for value in self.call(*places)], strict=True):
                memory.write(block, value, STREAM)

        made.made[-1].again = again
        return found


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty_cache() -> None:
        for memory in Memory.all:
            memory.empty_cache()

    generator = SimpleNamespace(clone_state=lambda: None)
    for name, value in {
        "current_stream": lambda device: STREAM, "is_current_stream_capturing": lambda: False, "CUDAGraph": Graph,
        "empty_cache": empty_cache, "default_generators": [generator], "device": lambda device: nullcontext(),
        "stream": lambda stream: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(graphs, "_stream", lambda device: STREAM)
    monkeypatch.setattr(graphs, "_index", lambda device: 0)
    monkeypatch.setattr(graphs, "_like", lambda tensor: INTO[0].take())
    pools.taken_in_turns.cache_clear()
    Memory.all.clear()


@pytest.fixture
def told() -> list[str]:
    return []


def forward_layers(told: list[str]) -> list[Recorder]:
    """The result, and what is saved."""

    def layer(number: int) -> Recorder:
        return Simulated(lambda x: (x * 2, x + number), GraphFacts(CPU, saved=1, shares=True), told.append)

    return [layer(number) for number in range(LAYERS)]


def backward_layers(told: list[str]) -> list[Recorder]:
    """Of an incoming gradient, the next one's and that of a parameter."""

    def program(g: torch.Tensor, saved: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return g * 2, g + saved

    def layer(number: int) -> Recorder:
        return Simulated(program, GraphFacts(CPU, shares=True), told.append, emptying=lambda box: program(*box))

    return [layer(number) for number in range(LAYERS)]


forward, backward = pytest.fixture(name="forward")(forward_layers), pytest.fixture(name="backward")(backward_layers)


class Training:
    """Layers of a model, and what the user holds of their results, with what it must be."""

    def __init__(self, forward: list[Recorder], backward: list[Recorder]) -> None:
        self.forward, self.backward, self.start = forward, backward, torch.zeros(1)
        self.held: list[tuple[torch.Tensor, float]] = []

    def passed(self, start: float) -> list[tuple[torch.Tensor, float]]:
        """Through all layers: what they have saved, which is in use until a backward pass is done with it."""
        x, saved = self.start.fill_(start), []
        for number, layer in enumerate(self.forward):
            x, kept = layer(x)
            saved.append((kept, start * 2**number + number))
        self.held.append((x, start * 2**LAYERS))
        return saved

    def gradients(self, saved: list[tuple[torch.Tensor, float]], start: float = 1) -> list[tuple[torch.Tensor, float]]:
        """The parameters', the last one's first. Lets go of what is saved if nobody else has the list."""
        gradient, expected, found = self.start.fill_(start), start, []
        for layer in reversed(self.backward):
            box, value = [gradient, saved[-1][0]], saved.pop()[1]
            gradient, of_parameter = layer.of_list(box)
            found.append((of_parameter, expected + value))
            expected *= 2
        return found

    def step(self, start: float) -> list[tuple[torch.Tensor, float]]:
        found = self.gradients(self.passed(start))
        self.held.clear()
        return found


@pytest.fixture
def training(forward: list[Recorder], backward: list[Recorder]) -> Training:
    return Training(forward, backward)


def right(*held: list[tuple[torch.Tensor, float]]) -> bool:
    return all(tensor.item() == expected for each in held for tensor, expected in each)


def recordings_of(layers: list[Recorder]) -> list[Any]:
    return [each for layer in layers for own in layer.sets.values() for each in own.recordings.values()]


def pools_of(layers: list[Recorder]) -> set[Any]:
    return {recording.pool for recording in recordings_of(layers)}


def test_layers_share_a_pool(training: Training, told: list[str]) -> None:
    for number in range(5):
        assert right(training.step(number))
    layers = training.forward + training.backward
    assert pools_of(layers) == {pools.taken_in_turns(0, "steps")}
    (memory,) = {recording.graphs[0].pool() for recording in recordings_of(layers)}
    assert not told
    assert BLOCKS - len(memory.free) <= 4 * LAYERS  # two results of either half are in use


def test_gradients_that_are_held_until_the_next_step(training: Training, told: list[str]) -> None:
    held: list[Any] = []
    for number in range(8):
        now = training.step(number)
        assert right(now, held)
        held = now
    assert len(told) <= LAYERS + 1
    assert pools_of(training.forward) == {pools.taken_in_turns(0, "forward")}
    assert pools.taken_in_turns(0, "steps") not in pools_of(training.backward)
    other = Training(forward_layers(told), backward_layers(told))
    for number in range(4):
        assert right(other.step(number), held)
    assert pools_of(other.forward + other.backward) == {pools.taken_in_turns(0, "steps")}


@pytest.mark.parametrize("small", [True, False])
def test_a_gradient_that_comes_from_elsewhere(
    small: bool, training: Training, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied; a larger one that is expected where it was has all halves recorded once more."""
    monkeypatch.setattr(graphs, "SMALL", graphs.SMALL * small)
    starts = [torch.zeros(1) for _ in range(8)]
    for number in (0, 0, 0, 1, 2, 3, 4):
        saved = training.passed(number)
        training.start, start = starts[number], training.start
        assert right(training.gradients(saved))
        training.start = start
        training.held.clear()
    layers = training.forward + training.backward
    assert pools_of(layers) == {pools.taken_in_turns(0, "steps")} and len(told) == (not small)
    assert all(each.taken is not None for each in recordings_of(training.backward))


def test_gradients_that_are_accumulated(training: Training) -> None:
    """As PyTorch does: into the first one's memory."""
    held: list[Any] = []
    for number in range(12):
        now = training.step(number)
        assert right(now, held)
        if held and number % 3:
            for k, ((tensor, expected), (more, added)) in enumerate(zip(held, now, strict=True)):
                held[k] = tensor.add_(more), expected + added
        else:
            held = now
        del now
        assert right(held)


def test_a_backward_pass_again(training: Training) -> None:
    for number in range(6):
        saved = training.passed(number)
        first, second = training.gradients([*saved]), training.gradients([*saved], 3)
        assert right(saved, first, second, training.held)


def test_an_error_in_between(training: Training, forward: list[Recorder]) -> None:
    program = forward[2].call

    def fails(x: torch.Tensor) -> Any:
        raise KeyboardInterrupt

    for number in range(8):
        if number % 3 == 2:
            forward[2].call = fails
            with pytest.raises(KeyboardInterrupt):
                training.passed(number)
            forward[2].call = program
        assert right(training.step(number))


def test_one_thread_at_a_time_uses_the_pool(training: Training) -> None:
    for number in range(3):
        training.step(number)
    (pool,), apart = pools_of(training.forward), []
    with pool.lock:
        thread = threading.Thread(target=lambda: apart.extend(training.passed(5)))
        thread.start()
        thread.join()
        assert not pool.out or all(handed.busy() == set() for handed in pool.out)
    assert right(apart, training.step(6))
    alone = [Simulated(lambda g: (g,), GraphFacts(CPU), print) for _ in range(2)]
    assert alone[0].lock is not alone[1].lock


def test_one_thread_at_a_time_uses_the_stream_of_recordings() -> None:
    """What another thread did there would become part of a recording."""
    told: list[str] = []

    def call(x: torch.Tensor) -> tuple:
        if INTO:  # while this is recorded, another thread calls a program that it has not called, and one that it has
            for recorder in others:
                thread = threading.Thread(target=lambda recorder=recorder: told.append(recorder(x)[0].item()))
                thread.start()
                thread.join()
        return (x + 1,)

    others = [Simulated(lambda x: (x + 2,), GraphFacts(CPU), print) for _ in range(2)]
    others[1](torch.ones(1))
    program = Simulated(call, GraphFacts(CPU), print)
    given = torch.ones(1)
    for _ in range(2):
        assert program(given)[0].item() == 2
    assert told == [3, 3] and not any(recordings_of(others)) and not others[0].sets[()].seen
    others[0](given)
    assert others[0].sets[()].seen


def test_inputs_that_a_first_call_lets_go_of_are_not_given_to_other_streams_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []

    class Known(torch.Tensor):
        def record_stream(self, stream: Any) -> None:
            told.append((id(self), stream))

    def empties(box: list) -> list:
        assert told == [(id(value), STREAM) for value in box[:2]]
        box.clear()
        return []

    monkeypatch.setattr(Recorder, "counted", lambda self, call: call())
    box = [torch.ones(2).as_subclass(Known), torch.ones(3).as_subclass(Known), 7]
    assert not Recorder(lambda *inputs: [], GraphFacts(CPU), print, emptying=empties).of_list(box) and not box


def test_moved_inputs_are_copied_to_memory_of_the_pool(forward: list[Recorder]) -> None:
    first, kept = forward[0], []
    for number in range(4):
        kept.append(torch.full((1,), float(number)))
        assert [tensor.item() for tensor in first(kept[-1])] == [number * 2, number]
    (recording,) = recordings_of([first])
    assert not recording.places and [*recording.targets] == [0]


def test_what_recordings_have_given_back_is_anybodys(training: Training, told: list[str]) -> None:
    """A gradient that lies there later is expected there by nobody."""
    others = {*OWNED}
    for number in range(3):
        assert right(training.step(number))
    kept = training.gradients(training.passed(3))
    training.held.clear()
    for recording in recordings_of(training.forward + training.backward):
        recording.graphs[0].again = lambda: None  # CUDA's do not know the recorder
    del recording
    training.forward.clear()
    training.backward.clear()
    gc.collect()
    assert right(kept)
    kept.clear()
    pools.taken_in_turns.cache_clear()
    gc.collect()
    assert {*OWNED} <= others


# ---------------------------------------------------------------- one program for several sets of parameters


def weights(number: int = LAYERS) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.full((1,), k + 2.0), False) for k in range(number)]


def scaled(told: list[str], saves: bool = False) -> Recorder:
    """A layer of any weight."""
    facts = GraphFacts(CPU, saved=int(saves), shares=saves)
    return Simulated(lambda x, w: (x * w, x + w) if saves else (x * w,), facts, told.append)


@pytest.mark.parametrize("saves", [False, True])
def test_equal_layers_replay_recordings_of_their_own(saves: bool, told: list[str]) -> None:
    """As of one entry that serves all of them: the second call of each is recorded, and nothing is copied but x."""
    layer, parameters, start = scaled(told, saves), weights(), torch.zeros(1)
    for number in range(5):
        x, value, saved = start.fill_(number), float(number), []
        for weight in parameters:
            before = value
            x, *kept = layer(x, weight)
            value *= weight.item()
            saved += [(each, before + weight.item()) for each in kept]
        assert x.item() == value and right(saved)
        del saved, kept
        assert len(recordings_of([layer])) == (LAYERS if number else 0)
    assert not told and all(1 in recording.places for recording in recordings_of([layer]))
    assert len(pools_of([layer])) == 1


def test_parameters_that_are_gathered_elsewhere_in_each_step(told: list[str]) -> None:
    """The same objects with other memory, as under `fully_shard`: they are copied, each layer by its own recording."""
    layer, parameters, start = scaled(told, True), weights(), torch.zeros(1)
    steps = []
    for number in range(6):
        gathered = [torch.full((1,), k + 2.0 + number) for k in range(LAYERS)]
        steps.append(gathered)
        x, value, saved = start.fill_(1), 1.0, []
        for weight, now in zip(parameters, gathered, strict=True):
            weight.data = now
            before = value
            x, kept = layer(x, weight)
            value *= now.item()
            saved.append((kept, before + now.item()))
        assert x.item() == value and right(saved)
        del saved, kept
    assert not told and [[*recording.targets] for recording in recordings_of([layer])] == [[1]] * LAYERS


def test_gathered_parameters_that_lie_at_one_place_for_a_while(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first two steps, where an allocator is asked for the same, and not later: nothing is recorded again."""
    layer, (weight,), start, made = scaled(told), weights(1), torch.ones(1), []
    monkeypatch.setattr(graphs, "gathered", lambda: {id(weight)})
    record = layer.recorded
    layer.recorded = lambda *args: made.append(0) or record(*args)
    steps = [torch.full((1,), 2.0 + max(number, 1)) for number in range(6)]
    steps[1] = steps[0]
    for now in steps:
        weight.data = now
        assert layer(start, weight)[0].item() == now.item()
    assert len(made) == 1 and not told
    assert [[*recording.targets] for recording in recordings_of([layer])] == [[1]]


def test_sets_that_are_gone_leave_nothing(told: list[str]) -> None:
    layer, start = scaled(told), torch.ones(1)
    for _ in range(4):
        parameters = weights()
        for _ in range(3):
            assert [layer(start, weight)[0].item() for weight in parameters] == [2, 3, 4, 5]
        assert len(recordings_of([layer])) == len(layer.sets) == LAYERS


def test_parameters_that_are_new_in_each_call_are_inputs_like_others(told: list[str]) -> None:
    layer, start = scaled(told), torch.ones(1)
    kept = []
    for number in range(3 * graphs.MOST):
        (weight,) = weights(1)
        kept.append(torch.empty(number + 1))  # so that it lies elsewhere
        assert layer(start, weight)[0].item() == 2
    (recording,) = recordings_of([layer])
    assert 1 in recording.targets and not told


def test_more_sets_than_are_recorded(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "SETS", LAYERS)
    layer, start, parameters = scaled(told), torch.ones(1), weights(LAYERS + 2)
    for _ in range(4):
        assert [layer(start, weight)[0].item() for weight in parameters] == [2, 3, 4, 5, 6, 7]
    assert len(recordings_of([layer])) == LAYERS


@pytest.mark.parametrize("seed", range(10))
def test_training_in_any_way(seed: int, training: Training, told: list[str]) -> None:
    """Some layers only, in any order; results kept, let go, written to; models dropped; memory given back."""
    choose = random.Random(seed)
    pending: list[tuple[int, list]] = []
    held = training.held
    forward, backward = training.forward, training.backward
    for number in range(120):
        order = choose.choice([range(LAYERS), sorted(choose.sample(range(LAYERS), 2)), [2, 0, 3]])
        training.forward, training.backward = [forward[k] for k in order], [backward[k] for k in order]
        x, expected, saved = torch.full((1,), float(number)), float(number), []
        for k in order:
            if choose.random() < 0.03:
                break  # the rest raises
            x, kept = forward[k](x)
            saved.append((k, kept, expected + k))
            expected *= 2
        held.append((x, expected))
        pending.append((number, saved))
        if choose.random() < 0.8:
            gradient, expected = torch.ones(1), 1.0
            saved = pending[choose.randrange(len(pending))][1]
            kept_on = choose.random() < 0.2
            if not kept_on:
                pending = [each for each in pending if each[1] is not saved]
            kept = None
            for k, value in [(k, value) for k, _, value in reversed(saved)]:
                box = [gradient, saved[-1][1]]
                if kept_on:
                    saved = saved[:-1]
                else:
                    saved.pop()
                gradient, of_parameter = backward[k].of_list(box)
                held.append((of_parameter, expected + value))
                expected *= 2
            held.append((gradient, expected))
        del pending[: choose.choice([0, 0, 0, 1])], x
        if choose.random() < 0.3:
            held[:] = [(tensor.add_(1), value + 1) for tensor, value in held]
        if choose.random() < 0.5:
            choose.shuffle(held)
            del held[: choose.randint(0, len(held))]
        if choose.random() < 0.05:
            choose.choice(forward + backward).sets.clear()
        torch.cuda.empty_cache()
        assert right(held) and all(kept.item() == value for _, saved in pending for _, kept, value in saved), number


class Product(torch.nn.Module):
    """A layer whose weight is made of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def plain_layer() -> tuple[torch.nn.Module, list[Any], list[Any]]:
    """And of its parameters what its forward and its backward program are given."""
    layer = torch.nn.Linear(4, 4)
    return layer, [layer.weight, layer.bias], [layer.weight]


def layer_of_parts() -> tuple[torch.nn.Module, list[Any], list[Any]]:
    layer = Product()
    weight: Any = layer.weight
    return layer, [weight.a, weight.b], [weight.a, weight.b]


@pytest.mark.parametrize("make", [plain_layer, layer_of_parts])
def test_a_recorder_is_given_the_programs_own_parameters(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards and backwards: they tell layers apart that one entry serves."""
    given: list[list[Any]] = []

    def noted(call: Any, facts: GraphFacts, report: Any, title: str, emptying: Any = None) -> Any:
        recorder = Recorder(call, facts, report, title)

        def run(*inputs: Any) -> Any:
            recorder.set_of([*inputs])
            given.append([*recorder.chosen([*inputs])[:-1]])
            return call(*inputs)

        return run if emptying is None else SimpleNamespace(of_list=lambda box: run(*box))

    monkeypatch.setattr(building, "traits", lambda device: replace(traits(device), records=True))
    monkeypatch.setattr(building, "unrecorded", lambda *args: "")
    monkeypatch.setattr(assembly, "Recorder", noted)
    layers = [make() for _ in range(5)]
    compiled = dovetail.compile(lambda layer, x: layer(x.sin()).cos())
    for layer, _, _ in layers:
        compiled(layer, torch.randn(2, 4, requires_grad=True)).sum().backward()
    expected = [each for _, *halves in layers for each in halves]
    assert [[*map(id, each)] for each in given] == [[*map(id, each)] for each in expected]


def test_values_that_each_replay_looks_at(told: list[str]) -> None:
    def positive(value: torch.Tensor) -> None:
        if value.item() < 0:
            raise ValueError("negative")

    class Checked(Simulated):
        def results(self, given: list, made: Any, taken: Any) -> Any:
            found = super().results(given, made)
            made.check(positive, (found[0],))
            made.made[-1].again = lambda: None
            return found

    program = Checked(lambda x: (x * 2,), GraphFacts(CPU), told.append)
    x = torch.ones(1)
    for value in (1, 2, 3, -1, 4, -2, 5):
        x.fill_(value)
        if value < 0:
            with pytest.raises(ValueError, match="negative"):
                program(x)
        else:
            assert program(x)[0].item() == 2 * value
    assert len(recordings_of([program])) == 1 and not told
