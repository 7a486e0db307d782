"""A compilation that fails or is interrupted leaves the program as it was."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import BaseTorchFunctionMode

import dovetail
from dovetail import assembly, building, guards, pipeline
from dovetail.capture import driver as capture_entry
from dovetail.ops.fake import FakeMode
from dovetail.runtime.dispatch import dispatcher as runtime_entry
from dovetail.runtime.dispatch import reentrancy, restore_modes

X = torch.randn(4, 4)


def surroundings() -> tuple[Any, ...]:
    """What a compilation must put back."""
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(), torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        list(warnings.filters), random.getstate(), torch.get_rng_state().tolist(), sys.gettrace(), sys.getprofile(),
        sys.getrecursionlimit(),
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What a first compilation imports changes the filters of warnings."""
    net = Net()
    torch.testing.assert_close(dovetail.compile(net)(X), net(X))
    with warnings.catch_warnings(), contextlib.suppress(dovetail.InternalError):
        warnings.simplefilter("ignore")
        dovetail.compile(lambda x: x.tolist())(X)


@pytest.fixture
def put_back() -> Iterator[None]:
    before, threads = surroundings(), {*threading.enumerate()}
    yield
    assert surroundings() == before and {*threading.enumerate()} <= threads  # one from before may have ended


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            with torch.no_grad():
                scale = x.abs().max() + 1
            x = torch.relu(layer(x)) / scale
        if x.sum() > 1e9:
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return x + y


NET = Net()


class Stop(Exception):
    pass


STAGES = {
    "capture": (capture_entry, "trace_call"),
    "the end of capture": (capture_entry, "finish"),
    "normalize": (pipeline, "normalize_joint"),
    "partition": (pipeline, "partition"),
    "lower": (building, "lower"),
    "schedule": (building, "schedule"),
    "loading": (assembly, "load_program"),
    "guards": (guards, "build"),
    "publishing": (runtime_entry.Dispatcher, "publish"),
}


@pytest.mark.parametrize("error", [Stop, MemoryError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails(stage: str, error: type[BaseException], put_back: None) -> None:
    """Ctrl-C arrives as it is; a failure of ours is an InternalError; the next call compiles as if nothing was."""
    owner, name = STAGES[stage]
    net = NET
    expected = net(X)
    compiled = dovetail.compile(net)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error("injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises((error, dovetail.InternalError)) as raised:
            compiled(X)
        if not issubclass(error, Exception):
            assert raised.type is error
    assert compiled._dovetail_dispatcher.entries == ()
    for _ in range(2):
        torch.testing.assert_close(compiled(X), expected)
    assert len(compiled._dovetail_dispatcher.entries) == 1


class Interrupted(KeyboardInterrupt):
    pass


def test_ctrl_c_at_any_moment(put_back: None) -> None:
    """The handler of a timer raises at random instants; whatever is running, later calls are right."""
    net, chosen = NET, random.Random(0)
    expected = net(X)

    def interrupt(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    hit = 0
    try:
        for _ in range(40):
            dovetail.reset()
            compiled = dovetail.compile(net, backend="aot_eager")
            try:
                signal.setitimer(signal.ITIMER_REAL, chosen.uniform(0.001, 0.08))
                compiled(X)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                hit += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            assert torch._C._len_torch_dispatch_stack() == 0
            torch.testing.assert_close(compiled(X), expected)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hit


def test_what_an_interrupt_leaves_is_put_back(put_back: None) -> None:
    before = restore_modes.mode_state()
    try:
        FakeMode().__enter__()
        BaseTorchFunctionMode().__enter__()
        torch.set_grad_enabled(False)
        torch.autocast_increment_nesting()
        torch.set_autocast_enabled("cpu", True)
    finally:
        restore_modes.restore(before)


def test_what_compiling_itself_changes(monkeypatch):
    """As where PyTorch imports a module that registers its classes: it is compiled again."""
    table, schedule = {"a": 1}, building.schedule

    def registering(*args):
        table.setdefault("b", 2)
        return schedule(*args)

    monkeypatch.setattr(building, "schedule", registering)
    compiled = dovetail.compile(lambda x: x + len(table))
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [3.0] * 3


def test_what_runs_outside_of_a_block_leaves_it_open() -> None:
    """Else PyTorch would keep what autocast has made of weights when the block ends, and never drop it again."""
    outer = restore_modes.mode_state()
    with torch.autocast("cpu"):
        inside = restore_modes.mode_state()
        assert reentrancy.outside(outer, restore_modes.mode_state) == outer
        assert restore_modes.mode_state() == inside
    assert restore_modes.mode_state() == outer


def test_a_handler_of_signals_runs_while_compiling() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        compiled = dovetail.compile(Net())
        compiled(X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen


# ---------------------------------------------------------------- recursion


@dovetail.compile(backend="eager")
def factorial(x, n: int):
    return x if n == 0 else factorial(x, n - 1) * n


@dovetail.compile(backend="eager")
def even(x, n: int):
    return x + 1 if n == 0 else odd(x, n - 1) * 2


@dovetail.compile(backend="eager")
def odd(x, n: int):
    return x - 1 if n == 0 else even(x, n - 1) * 3


@dovetail.compile(backend="eager")
def deep(x, n: int):
    if n == 0:
        return x
    dovetail.graph_break()
    return deep(x, n - 1) + 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compiled_functions_call_themselves_and_one_another() -> None:
    for n in (0, 1, 5, 6):
        torch.testing.assert_close(factorial(X, n), X * [1, 1, 2, 6, 24, 120, 720][n])
        torch.testing.assert_close(even(X, n), even.__wrapped__(X, n))
    for n in (3, 130):  # deeper than what is inlined
        torch.testing.assert_close(factorial(X, n), plain_factorial(X, n))
    for n in (3, 50):
        torch.testing.assert_close(deep(X, n), X + n, rtol=1e-4, atol=1e-4)


def plain_factorial(x, n):
    for k in range(1, n + 1):
        x = x * k
    return x


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_endless_recursion_is_the_programs_error() -> None:
    @dovetail.compile(backend="eager")
    def endless(x):
        return endless(x + 1)

    for _ in range(2):
        with pytest.raises(RecursionError):
            endless(X)
    torch.testing.assert_close(dovetail.compile(torch.sin)(X), torch.sin(X))


# ---------------------------------------------------------------- the end of the process

EXITS = {
    "at exit": "import atexit\natexit.register(lambda: print('last', torch.equal(f(x), x * 2)))",
    "at exit, first compiled there": "g = dovetail.compile(lambda x: x + 5)\n"
    "import atexit\natexit.register(lambda: print('last', torch.equal(g(x), x + 5)))",
    "from a destructor": "class D:\n    def __del__(self): print('last', torch.equal(f(x), x * 2))\n"
    "d = D(); d.d = d; del d\nimport gc; gc.collect()",
}  # fmt: skip


@pytest.mark.parametrize("how", EXITS)
def test_compiled_code_at_the_end_of_a_process(how: str) -> None:
    text = f"import torch, dovetail\nf = dovetail.compile(lambda x: x * 2)\nx = torch.ones(3)\nf(x)\n{EXITS[how]}\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "last True"), done.stderr
    assert "Error" not in done.stderr
