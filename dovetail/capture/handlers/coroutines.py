"""Coroutines and asynchronous generators, driven inside the region."""

from __future__ import annotations

from typing import Any

from dovetail.bytecode.decode import Instruction
from dovetail.capture.handlers.flow import entering
from dovetail.capture.interpreter.frame import Frame, GeneratorValue
from dovetail.capture.tables.opcode_handlers import op
from dovetail.capture.values.base import NONE, Raised, Session, Value
from dovetail.capture.values.iterators import IteratorValue

AWAITABLE = 0x80 | 0x100  # a coroutine, or a generator that `types.coroutine` marked
ASYNC_GENERATOR = 0x200


class Wrapped(Value):
    """What an asynchronous generator yields to its consumer, told apart from what it awaits."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class AsyncStep(IteratorValue):
    """The awaitable that `__anext__` of an asynchronous generator gives."""

    __slots__ = ("generator", "result")

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.generator = generator
        self.result: Value = NONE

    def step(self, s: Session) -> Value | None:
        return self.send(s, NONE)

    def send(self, s: Session, value: Value) -> Value | None:
        return self._outcome(s, self.generator.send(s, value))

    def throw(self, s: Session, error: Value) -> Value | None:
        return self._outcome(s, self.generator.throw(s, error))

    def _outcome(self, s: Session, got: Value | None) -> Value | None:
        if got is None:
            return s.throw(StopAsyncIteration)
        if isinstance(got, Wrapped):
            self.result = got.value
            return None
        return got


def _flags(value: Any) -> int:
    return value.frame.code.code.co_flags if isinstance(value, GeneratorValue) else 0


def awaited(s: Session, value: Value) -> Value:
    """The iterator that `await value` goes through."""
    if _flags(value) & AWAITABLE or isinstance(value, AsyncStep):
        return value
    method = s.find_special(value, "__await__")
    if method is None:
        return s.throw(TypeError, f"object {value.cls.__name__} can't be used in 'await' expression")
    return s.call(method)


@op("GET_AWAITABLE")
def get_awaitable(f: Frame, i: Instruction) -> None:
    f.stack_[-1] = awaited(f.s, f.stack_[-1])


@op("GET_AITER")
def get_aiter(f: Frame, i: Instruction) -> None:
    value = f.stack_[-1]
    if not _flags(value) & ASYNC_GENERATOR:
        method = f.s.find_special(value, "__aiter__")
        if method is None:
            f.s.throw(TypeError, f"'async for' requires an object with __aiter__ method, got {value.cls.__name__}")
        f.stack_[-1] = f.s.call(method)


@op("GET_ANEXT")
def get_anext(f: Frame, i: Instruction) -> None:
    value = f.stack_[-1]
    own = _flags(value) & ASYNC_GENERATOR
    f.stack_.append(AsyncStep(value) if own else awaited(f.s, f.s.call_method(value, "__anext__")))


@op("ASYNC_GEN_WRAP")
def async_gen_wrap(f: Frame, i: Instruction) -> None:
    f.stack_[-1] = Wrapped(f.stack_[-1])


@op("END_ASYNC_FOR")
def end_async_for(f: Frame, i: Instruction) -> None:
    error = f.stack_.pop()
    if error.cls is not StopAsyncIteration:
        raise Raised(error)
    f.stack_.pop()


@op("BEFORE_ASYNC_WITH")
def before_async_with(f: Frame, i: Instruction) -> None:
    f.stack_.append(f.s.call(entering(f, "__aenter__", "__aexit__", "asynchronous context manager")))
