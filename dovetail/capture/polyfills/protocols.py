"""What the interpreter still does after a call that it makes on its own, as Python code.

Where capture makes such a call natively (`__init__`, an operator's method), a frame of one of these functions stands
between the caller and the called function. So a graph can end inside the called function: what remains is made of
frames with real code only. Before a graph break these frames run nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import CodeType
from typing import Any

from dovetail.bytecode import decode
from dovetail.capture.polyfills.iteration import CONSUMERS, CONSUMING, STREAMS, first
from dovetail.ir.stores import remembered

Call = Callable[[], Any]


def construct(call: Call, made: Any) -> Any:
    result = call()
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return made


def operate(call: Call, receiver: Any, other: Any, method: Any, message: Any) -> Any:
    """After the first method of two; `method` is the name of the second, which is the receiver's, or None."""
    result = call()
    if result is NotImplemented and method is not None:
        found = getattr(type(receiver), method, None)
        if found is not None:
            result = found(receiver, other)
    if result is NotImplemented:
        raise TypeError(message)
    return result


def operate_in_place(call: Call, receiver: Any, other: Any, function: Any) -> Any:
    """After `__iadd__` and its like; `function` is the plain operator."""
    result = call()
    return function(receiver, other) if result is NotImplemented else result


def equate(call: Call, left: Any, right: Any, first: Any, method: Any, equal: bool) -> Any:
    """After the first of two `__eq__` or `__ne__`, that of `first`; `method` is the name of the other's, or None."""
    result = call()
    if result is NotImplemented and method is not None:
        other = right if first is left else left
        result = getattr(type(other), method)(other, first)
    if result is NotImplemented:
        result = (left is right) is equal
    return result


def fetch(call: Call, receiver: Any, name: Any) -> Any:
    """After what computes an attribute, of a class that has `__getattr__` too."""
    try:
        return call()
    except AttributeError:
        pass
    return type(receiver).__getattr__(receiver, name)


def keep(call: Call, receiver: Any, name: Any) -> Any:
    """After the function of a `cached_property`."""
    result = call()
    receiver.__dict__[name] = result
    return result


def discard(call: Call) -> None:
    """After a setter, which `setattr` calls."""
    call()


def fetch_or(call: Call, default: Any) -> Any:
    """After what computes an attribute, for `getattr` with a default."""
    try:
        return call()
    except AttributeError:
        return default


def exists(call: Call) -> bool:
    """After what computes an attribute, for `hasattr`."""
    try:
        call()
    except AttributeError:
        return False
    return True


def advance_or(call: Call, default: Any) -> Any:
    """After `__next__`, for `next` with a default."""
    try:
        return call()
    except StopIteration:
        return default


class Ahead:
    """An iterator whose next value is known already; FOR_ITER takes `rest` in its place once it has that."""

    def __init__(self, value: Any, rest: Any) -> None:
        self.value, self.rest, self.given = value, rest, False

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        if self.given:
            return next(self.rest)
        value, self.value, self.given = self.value, None, True
        return value


def ahead(call: Call, iterator: Any) -> Any:
    """After `__next__` of what a loop walks: the loop's instruction is made again with the result."""
    try:
        value = call()
    except StopIteration:
        return iter(())
    return Ahead(value, iterator)


def decide(call: Call) -> bool:
    """After `__bool__`."""
    result = call()
    if type(result) is not bool:
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    return result


def outlast(call: Call) -> bool:
    """After `__len__`, where the truth is asked for."""
    result = call()
    return counted(result) > 0


def contain(call: Call, wanted: bool) -> bool:
    """After `__contains__`."""
    result = call()
    return bool(result) is wanted


def measure(call: Call) -> int:
    """After `__len__`."""
    result = call()
    return counted(result)


def counted(result: Any) -> int:
    count = operator.index(result)
    if count < 0:
        raise ValueError("__len__() should return >= 0")
    return count


AFTER = (
    construct, operate, operate_in_place, equate, fetch, fetch_or, exists, keep, discard, advance_or, ahead, decide,
    outlast, contain, measure, counted, Ahead.__init__,
)  # fmt: skip
#: Frames that users do not see.
HIDDEN = frozenset(f.__code__ for f in (*AFTER, *CONSUMERS.values(), *CONSUMING.values(), *STREAMS, first))


@remembered(5000)
def call_index(code: CodeType) -> int:
    """The instruction that makes the call `call()`."""
    instructions = decode(code).instructions
    loaded = next(k for k, i in enumerate(instructions) if i.value == "call" and i.name.startswith("LOAD"))
    return next(k for k in range(loaded, len(instructions)) if instructions[k].name == "CALL")
