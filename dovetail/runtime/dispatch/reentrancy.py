"""Calls that arrive on a thread while it compiles something else: from a handler of signals, `__del__`, a callback.

Such code knows nothing of the compilation that it interrupts. It must not run on tensors without memory, nor under the
grad mode that a stage has set, and nothing else is compiled meanwhile: entries that exist are used, other calls are
eager. What a compilation itself calls, a user's backend, say, may compile (`allowed`), and code that it runs on fake
tensors shall see them. Handlers of signals run outside as a whole, so their own operators are eager's as well.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dovetail.ir.liveness import leaves
from dovetail.runtime.dispatch.restore_modes import ModeState, mode_state, restore

_C = torch._C
_SIGNALS = tuple(signal.valid_signals())


class _Thread(threading.local):
    outer: ModeState | None = None  # of the compilation under way


_thread = _Thread()

#: One compilation at a time; re-entrant, since capture may run user code.
COMPILING = threading.RLock()
#: Held by a thread that makes machine code for the one that compiles, and may not have ended when that one gives up.
BESIDE = threading.Lock()


def _outer() -> ModeState | None:
    """Of the compilation under way. Where Ctrl-C has come before `compiling` could tidy up, nobody has the lock."""
    if _thread.outer is not None and not COMPILING._is_owned():  # type: ignore[attr-defined]
        _thread.outer = None
    return _thread.outer


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """This thread compiles."""
    before, _thread.outer = _thread.outer, mode_state()
    handlers = _wrapped_handlers()
    try:
        yield
    finally:
        for number, (wrapper, handler) in handlers.items():
            if signal.getsignal(number) is wrapper:
                signal.signal(number, handler)
        _thread.outer = before


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """In this block calls may compile: it is run on purpose."""
    before, _thread.outer = _thread.outer, None
    try:
        yield
    finally:
        _thread.outer = before


def _wrapped_handlers() -> dict[int, tuple[Any, Any]]:
    """The program's handlers of signals, each replaced by one that runs it outside: the new ones and the old."""
    found: dict[int, tuple[Any, Any]] = {}
    if threading.current_thread() is not threading.main_thread():
        return found  # handlers run on the main thread
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if isinstance(handler, functools.partial) and handler.func is _handle:
            continue  # of a compilation around this one, or left by one that was interrupted
        if callable(handler) and handler is not signal.default_int_handler:
            wrapper = functools.partial(_handle, handler)
            try:
                signal.signal(number, wrapper)
            except ValueError:  # not the main interpreter
                return found
            found[number] = wrapper, handler
    return found


def _handle(handler: Callable[[int, Any], Any], number: int, frame: Any) -> None:
    outer = _outer()
    if outer is None:
        handler(number, frame)
    else:
        outside(outer, lambda: handler(number, frame))


def interrupting(args: tuple, kwargs: Mapping[str, Any]) -> ModeState | None:
    """The program's state if this call comes in the middle of a compilation that knows nothing of it."""
    outer = _outer()
    if outer is None:
        return None
    fakes = importlib.import_module("dovetail.ops.fake")  # which a compilation has loaded by now
    return None if any(isinstance(leaf, fakes.FakeTensor) for leaf in leaves((args, dict(kwargs)))) else outer


def outside(outer: ModeState, call: Callable[[], Any]) -> Any:
    """`call()` in the state that the program was in, and then everything again as the compilation has it."""
    inner = mode_state()
    dispatch = [_C._get_dispatch_stack_at(k) for k in range(outer.dispatch_modes, inner.dispatch_modes)]
    functions = [_C._get_function_stack_at(k) for k in range(outer.function_modes, inner.function_modes)]
    try:
        restore(outer)
        return call()
    finally:
        restore(outer)
        for mode in dispatch:
            _C._push_on_torch_dispatch_stack(mode)
        for mode in functions:
            _C._push_on_torch_function_stack(mode)
        restore(inner)


PATIENCE = 60.0  # seconds


class ForkGuard:
    """Lets a fork wait until nobody else holds `lock`; gives up waiting in case its holder waits for the fork.

    The child has no thread that compiles: what one was doing would stay half done.
    """

    def __init__(self, lock: Any) -> None:
        self.lock, self.held = lock, False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.before, after_in_parent=self.after, after_in_child=self.in_child)

    def before(self) -> None:
        self.held = self.lock.acquire(timeout=PATIENCE)

    def after(self) -> None:
        if self.held:
            self.lock.release()

    def in_child(self) -> None:
        if self.held:
            self.lock.release()
        else:
            self.lock._at_fork_reinit()


ForkGuard(BESIDE)  # waited for last, since the latest is the first
ForkGuard(COMPILING)
