"""A generator or coroutine in the middle of its body: as data that capture goes on from, and as the Python object.

The residual makes a shell: a Python generator that has its state beside it. As long as nobody advances the shell,
capture of what follows reads the state, traces the body from there and stores a new state. The first to advance it
natively turns the state into a generator of the user's own code, and the shell hands everything on to that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from types import CoroutineType, GeneratorType
from typing import Any

from dovetail.capture.breaks.resume import Waiting, finish, native_generator, waiting_frames
from dovetail.ir.captured import Continuation
from dovetail.ir.records import dataclass

NEW, WAITING, INSIDE = "new", "waiting", "inside"


@dataclass(frozen=True, eq=False)
class Paused:
    """Where a generator stands: before its first line, at a yield, or inside a step that somebody will go on with."""

    kind: str
    rest: Continuation


class GeneratorState:
    """`paused` is None when the generator has ended or runs natively; `values` fill the points of its frames."""

    __slots__ = ("ended", "paused", "values")

    def __init__(self) -> None:
        self.paused: Paused | None = None
        self.values: tuple = ()
        self.ended = False


_STATES: weakref.WeakKeyDictionary[Any, GeneratorState] = weakref.WeakKeyDictionary()
#: Those that a program, a guard or a generator still has: a second object would be another place to them.
_PLACES: weakref.WeakValueDictionary[Any, Paused] = weakref.WeakValueDictionary()
_UNKNOWN = GeneratorState()


def paused_at(kind: str, rest: Continuation) -> Paused:
    """Equal places are one object, so that a guard compares identities."""
    return _PLACES.setdefault((kind, rest.key), Paused(kind, rest))


def state_of(generator: Any) -> GeneratorState:
    """Where a generator stands."""
    return _STATES.get(generator, _UNKNOWN)


def fresh(kind: type) -> Any:
    """A shell, a generator or a coroutine, whose state will be set."""
    state = GeneratorState()
    made = SHELLS[kind](state)
    made.send(None)
    _STATES[made] = state
    return made


def set_state(generator: Any, paused: Paused | None, values: tuple) -> None:
    """Let the generator stand elsewhere; None: it has ended."""
    state = _STATES[generator]
    state.paused, state.values, state.ended = paused, values, paused is None
    if paused is not None:
        code = paused.rest.points[0].code
        generator.__name__, generator.__qualname__ = code.co_name, code.co_qualname


def _shell(state: GeneratorState) -> Generator[Any, Any, Any]:
    sent, thrown = None, None
    try:
        sent = yield
    except BaseException as error:
        thrown = error
    paused, values = state.paused, state.values
    state.paused, state.values = None, ()
    if paused is None:
        if thrown is not None:
            raise thrown
        return None
    return (yield from _Forward(_START[paused.kind](paused, values), sent, thrown))


class _Delegated:
    """Makes a coroutine of what a shell does."""

    def __init__(self, state: GeneratorState) -> None:
        self.state = state

    def __await__(self) -> Generator[Any, Any, Any]:
        return _shell(self.state)


async def _coroutine_shell(state: GeneratorState) -> Any:
    return await _Delegated(state)


#: By the type that the user's object has in eager mode.
SHELLS: dict[type, Callable[[GeneratorState], Any]] = {GeneratorType: _shell, CoroutineType: _coroutine_shell}


class _Forward:
    """Hands on to `inner`, what the shell was given first included."""

    def __init__(self, inner: Any, sent: Any, thrown: BaseException | None) -> None:
        self.inner, self.sent, self.thrown = inner, sent, thrown

    def __iter__(self) -> _Forward:
        return self

    def __next__(self) -> Any:
        sent, thrown = self.sent, self.thrown
        self.sent = self.thrown = None
        return self.inner.send(sent) if thrown is None else self.inner.throw(thrown)

    def send(self, value: Any) -> Any:
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self.inner.throw(*error)

    def close(self) -> None:
        self.inner.close()


def _new(paused: Paused, values: tuple) -> Any:
    return native_generator(paused.rest.points[0], paused.rest.scopes[0], values)


def _waiting(paused: Paused, values: tuple) -> Any:
    """Primed: it waits at a yield of the prologue, whose value goes where the user's yield was."""
    made = Waiting(paused.rest.points[0], paused.rest.scopes[0], len(values)).run(values, ())
    made.send(None)
    return made


def _inside(paused: Paused, values: tuple) -> Any:
    """What the generator waits for is run first."""
    (own, given), *inner = waiting_frames(paused.rest, values)
    result: tuple = ()
    if inner:
        try:
            result = (finish(inner, own.handled(given)),)
            result = result if own.point.result else ()
        except BaseException as error:
            return own.handle(given, error)
    return own.run(given, result)


_START = {NEW: _new, WAITING: _waiting, INSIDE: _inside}
