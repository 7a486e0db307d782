"""Many threads call and compile at once; processes, pickles and copies of what is compiled."""

from __future__ import annotations

import copy
import dataclasses
import gc
import multiprocessing
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

THREADS = 16


def together(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """`work(k)` in `count` threads that start at the same moment; raises what any of them raised."""
    barrier = threading.Barrier(count)

    def run(k: int) -> Any:
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        return [f.result(timeout=300) for f in [pool.submit(run, k) for k in range(count)]]


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


def shared(x, k: int = 0, flag: bool = False):
    y = x * (k + 1)
    if flag:
        y = y.relu()
    return y + x.shape[0]


def test_one_function_and_many_shapes() -> None:
    compiled = dovetail.compile(shared, backend="eager", dynamic=False)
    inputs = [torch.randn(2 + k % 4, 3) for k in range(THREADS)]

    def work(k: int) -> None:
        for turn in range(5):
            x = inputs[(k + turn) % THREADS]
            torch.testing.assert_close(compiled(x), shared(x))

    together(work)
    assert entries(compiled) == 4


def test_an_entry_that_another_thread_adds_meanwhile_is_used() -> None:
    """The call has seen that no entry fits when the one that does appears."""
    compiled = dovetail.compile(shared, backend="eager", dynamic=False)
    x, other = torch.randn(3, 3), torch.randn(4, 3)
    compiled(x)
    dispatcher = compiled._dovetail_dispatcher
    [entry] = dispatcher.entries
    meanwhile = iter([False, True])  # first as the one to try first, then as one of all

    def slow(*args: Any, **kwargs: Any) -> Any:
        result = entry.call(*args, **kwargs)
        if next(meanwhile, False):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(compiled, other).result(timeout=60)
        return result

    dispatcher.publish((dataclasses.replace(entry, call=slow),))
    torch.testing.assert_close(compiled(other), shared(other))
    assert next(meanwhile, None) is None
    assert entries(compiled) == 2


def test_one_function_and_many_values() -> None:
    """Numbers that change become inputs, whichever thread sees them change."""
    compiled = dovetail.compile(shared, backend="eager")
    x = torch.randn(3, 3)

    def work(k: int) -> None:
        for turn in range(5):
            torch.testing.assert_close(compiled(x, k + turn, turn % 2 == 0), shared(x, k + turn, turn % 2 == 0))

    together(work)
    assert entries(compiled) <= 4


def test_each_thread_has_its_own_function() -> None:
    def work(k: int) -> None:
        compiled = dovetail.compile(lambda x: torch.sin(x) * k + x.sum(), fullgraph=True)
        x = torch.randn(4)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), torch.sin(x) * k + x.sum())

    together(work)


def test_graphs_that_break() -> None:
    def fn(x, k):
        y = x * 2
        dovetail.graph_break()
        if y.sum() > 0:
            y = y + k
        return y.tolist()

    compiled = dovetail.compile(fn, backend="eager")

    def work(k: int) -> None:
        for sign in (1, -1, 1):
            x = torch.full((3,), float(sign))
            assert compiled(x, k) == fn(x, k)

    together(work)


def test_modules_are_trained_in_threads() -> None:
    def work(k: int) -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        reference = copy.deepcopy(model)
        compiled = dovetail.compile(model)
        x = torch.randn(5, 4)
        for m in (compiled, reference):
            m(x).sum().backward()
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)

    together(work, 8)


def modes(x):
    y = x @ x
    return y, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), y.dtype


def test_modes_belong_to_a_thread() -> None:
    """One compiles under no_grad, one under autocast, one under neither: each keeps its own."""
    compiled, x = dovetail.compile(modes, backend="eager"), torch.randn(3, 3)
    managers: list[Callable[[], Any]] = [
        torch.no_grad, torch.enable_grad, lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode,
    ]  # fmt: skip

    def work(k: int) -> None:
        for _ in range(4):
            with managers[k % 4]():
                actual, expected = compiled(x), modes(x)
                torch.testing.assert_close(actual[0], expected[0])
                assert actual[1:] == expected[1:]
            assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")

    together(work)
    assert entries(compiled) == 4


def test_eager_work_beside_a_compilation_is_untouched() -> None:
    """The modes under which one thread captures are its own."""
    done = threading.Event()
    seen: list[Any] = []

    def eager() -> None:
        while not done.is_set():
            x = torch.ones(3)
            seen.append((type(x), float(x.sum()), torch.is_grad_enabled()))

    beside = threading.Thread(target=eager)
    beside.start()
    try:
        for k in range(5):
            model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4 + k)))
            dovetail.compile(model)(torch.randn(2, 4))
    finally:
        done.set()
        beside.join()
    assert set(seen) == {(torch.Tensor, 3.0, True)}


def test_a_thread_that_ends_leaves_what_it_compiled() -> None:
    compiled, x = dovetail.compile(shared), torch.randn(3, 3)
    thread = threading.Thread(target=compiled, args=(x,))
    thread.start()
    thread.join()
    assert entries(compiled) == 1
    torch.testing.assert_close(compiled(x), shared(x))
    assert entries(compiled) == 1


def test_what_a_thread_saw_goes_with_it() -> None:
    compiled = dovetail.compile(shared, backend="eager")
    refs: list[weakref.ref[Any]] = []

    def work() -> None:
        x = torch.randn(3, 3)
        refs.append(weakref.ref(x))
        compiled(x)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert refs[0]() is None


def test_resetting_while_others_call() -> None:
    compiled, x = dovetail.compile(shared, backend="eager"), torch.randn(3, 3)

    def work(k: int) -> None:
        for turn in range(10):
            if k == 0:
                dovetail.reset()
            torch.testing.assert_close(compiled(x, turn % 3), shared(x, turn % 3))

    together(work)


def test_a_backend_that_waits_for_another_thread() -> None:
    """User code that runs while compiling may wait for a thread that calls what is compiled already."""
    ready, x = dovetail.compile(shared, backend="eager"), torch.randn(3, 3)
    ready(x)

    def backend(gm: Any, inputs: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            torch.testing.assert_close(pool.submit(ready, x).result(timeout=60), shared(x))
        return gm.forward

    torch.testing.assert_close(dovetail.compile(shared, backend=backend)(x), shared(x))


def test_copies_and_pickles_in_threads() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled, x = dovetail.compile(model, backend="eager"), torch.randn(2, 4)
    expected = model(x)
    compiled(x)

    def work(k: int) -> None:
        twin = copy.deepcopy(compiled) if k % 2 else pickle.loads(pickle.dumps(compiled))
        torch.testing.assert_close(twin(x), expected)
        torch.testing.assert_close(compiled(x), expected)

    together(work, 8)


# ---------------------------------------------------------------- processes


@dovetail.compile
def doubled(x):
    return x * 2 + 1


def in_child(queue: Any, x: torch.Tensor) -> None:
    torch.set_num_threads(1)
    first = doubled(x)
    other = dovetail.compile(lambda x: x.sin() + 1)(x)
    queue.put((first.tolist(), other.tolist()))


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, k: int) -> torch.Tensor:
        return doubled(torch.full((3,), float(k)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_after_compiling(method: str) -> None:
    """What was compiled before a fork runs in the child, and the child compiles more."""
    x = torch.arange(4.0)
    doubled(x)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue, x))
    child.start()
    try:
        first, other = queue.get(timeout=120)
    finally:
        child.join(timeout=30)
        child.kill()
    assert child.exitcode == 0
    assert first == (x * 2 + 1).tolist()
    torch.testing.assert_close(torch.tensor(other), x.sin() + 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_compiles() -> None:
    """The child has no thread that would ever finish that compilation, and must not wait for it."""
    started = threading.Event()

    def slow(gm: Any, inputs: Any) -> Any:
        started.set()
        time.sleep(0.5)
        return gm.forward

    x = torch.arange(4.0)
    thread = threading.Thread(target=dovetail.compile(shared, backend=slow), args=(x,))
    thread.start()
    started.wait(60)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue, x))
    child.start()
    try:
        first, _ = queue.get(timeout=60)
    finally:
        thread.join()
        child.join(timeout=30)
        child.kill()
    assert first == (x * 2 + 1).tolist()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_of_a_data_loader() -> None:
    doubled(torch.zeros(3))
    loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2)
    found = torch.cat(list(loader))
    torch.testing.assert_close(found[:, 0], torch.arange(8.0) * 2 + 1)
