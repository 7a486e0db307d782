"""Code that arrives in the middle of a compilation on the same thread: handlers of signals, finalizers, callbacks.

It is let in deterministically, at places drawn from all the function calls that a compilation makes.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.runtime.dispatch import restore_modes

PLACES = 12  # at which one compilation is interrupted


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x @ w + b, b.shape)).softmax(-1) * x.sum(1, keepdim=True)


def inner(x: torch.Tensor) -> torch.Tensor:
    return x.cos() + x.sum()


COMPILED = dovetail.compile(inner)
X = torch.linspace(-1, 1, 64)


def _check(got: Any, want: torch.Tensor) -> None:
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, want)


# What follows runs in the middle of a compilation. What it `SEEN` is checked later, since operators of the checks would
# be run on fake tensors.


def _compiled_already() -> None:
    SEEN.append((COMPILED(X), WANT))


def _compiled_anew() -> None:
    SEEN.append((dovetail.compile(lambda x: inner(x))(X), WANT))


def _another_size() -> None:
    SEEN.append((COMPILED(NINE), WANT_OF_NINE))


def _in_a_finalizer() -> None:
    class Last:
        def __del__(self) -> None:
            _compiled_already()

    Last()


def _in_a_callback_of_a_reference() -> None:
    class Referred: ...

    referred = Referred()
    reference = weakref.ref(referred, lambda _: _compiled_already())
    del referred
    assert reference() is None


def _in_a_callback_of_the_collector() -> None:
    callback = lambda phase, info: _compiled_already() if phase == "stop" else None
    gc.callbacks.append(callback)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(callback)


def _in_a_handler_of_signals() -> None:
    signal.raise_signal(signal.SIGUSR1)


def _handler(*_: Any) -> None:
    """What such a handler does itself is eager."""
    _compiled_already()
    SEEN.append((inner(X), WANT))
    LEAF.grad = None
    COMPILED(LEAF).backward(ONES)
    SEEN.append((LEAF.grad, GRADIENT))


def _in_another_thread() -> None:
    thread = threading.Thread(target=_compiled_already)
    thread.start()
    thread.join(60)


def _reset() -> None:
    dovetail.reset()
    SEEN.append((X, X))


NINE, ONES = X[:9].clone(), torch.ones(64)
WANT, WANT_OF_NINE = inner(X), inner(NINE)
LEAF = X.clone().requires_grad_()
(GRADIENT,) = torch.autograd.grad(inner(LEAF), LEAF, ONES)
SEEN: list[tuple[Any, torch.Tensor]] = []
ACTS: dict[str, Callable[[], None]] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        _compiled_already, _compiled_anew, _another_size, _in_a_finalizer, _in_a_callback_of_a_reference,
        _in_a_callback_of_the_collector, _in_a_handler_of_signals, _in_another_thread, _reset,
    )
}  # fmt: skip


class Interrupting:
    """Calls `act` at some of the function calls made inside the block, counted from its beginning."""

    def __init__(self, act: Callable[[], None], places: set[int]) -> None:
        self.act, self.places, self.count, self.errors = act, places, 0, []  # type: ignore[var-annotated]

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        self.count += 1
        if self.count in self.places:
            try:
                self.act()
            except Exception as error:
                self.errors.append(error)

    def __enter__(self) -> Interrupting:
        sys.settrace(self)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(None)


def _train(compiled: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    result = compiled(*inputs)
    return [result, *torch.autograd.grad(result.pow(2).sum(), inputs)]


@pytest.mark.parametrize("act", ACTS)
def test_in_the_middle_of_a_compilation(act: str) -> None:
    inputs = [torch.randn(size).requires_grad_() for size in ((5, 8), (8, 8), (8,))]
    want = _train(program, inputs)
    _train(dovetail.compile(program), inputs)  # what is imported and remembered once
    COMPILED(X), _train(COMPILED, [X.clone().requires_grad_()])
    SEEN.clear()
    before = signal.signal(signal.SIGUSR1, _handler)
    try:
        with Interrupting(lambda: None, set()) as counting:
            _train(dovetail.compile(program), inputs)
        drawn = set(random.Random(act).sample(range(1, counting.count), PLACES))
        state = restore_modes.mode_state()
        with Interrupting(ACTS[act], drawn) as interrupting:
            got = _train(dovetail.compile(program), inputs)
        assert interrupting.count >= max(drawn)
    finally:
        signal.signal(signal.SIGUSR1, before)
    if interrupting.errors:
        raise interrupting.errors[0]
    assert restore_modes.mode_state() == state
    assert len(SEEN) >= PLACES
    for one, other in (*SEEN, *zip(got, want, strict=True)):
        _check(one, other)


def test_the_programs_handlers_are_its_own_again() -> None:
    handler = lambda *_: None
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        dovetail.compile(lambda x: x + 1)(X)
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_replaces_itself_while_compiling() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return graph.forward

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        dovetail.compile(lambda x: x + 1, backend=backend)(X)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_backend_may_compile() -> None:
    """A compilation that is asked for on purpose is no interruption."""
    made = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled = dovetail.compile(graph.forward, fullgraph=True)
        compiled(*inputs)
        made.append(len(compiled._dovetail_dispatcher.entries))
        return compiled

    _check(dovetail.compile(inner, backend=backend)(X), WANT)
    assert made == [1]
