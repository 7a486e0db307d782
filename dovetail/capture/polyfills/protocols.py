"""Protocols of the interpreter as Python code: what it does around the methods of the program's classes.

Capture runs these functions in frames of their own, between the instruction and the method, wherever the method is
written in Python. So a graph can end inside the method: what remains is made of frames with real code only. What they
ask of objects without running code of the program (`special`, `returned`, `missing`), capture knows itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.capture.cpython.asked import asked, looked_up
from dovetail.capture.polyfills.iteration import CONSUMERS, CONSUMING, STREAMS, first


def special(value: Any, name: str) -> Any:
    """`type(value).name` bound to the value, as the interpreter looks up special methods; None if there is none."""
    return looked_up(value, name, None)


def returned(value: Any, name: str, found: Any) -> Any:
    """What Python makes of the result of a special method of the value."""
    return asked(type(value).__name__, name, found)


def missing(receiver: Any, name: str) -> Any:
    """The attribute by `__getattr__`, which is asked for what is not there."""
    return type(receiver).__getattr__(receiver, name)


def construct(init: Callable[[], Any], made: Any) -> Any:
    """What a class makes of `made`, with the call of its `__init__`."""
    result = init()
    if result is not None:
        returned(made, "__init__", result)
    return made


def operate(method: Callable[[Any], Any], argument: Any, others: tuple[Any, ...], message: str) -> Any:
    """An operator: methods of one operand that take the other, until one knows.

    `others`: a receiver, the name of its method, and that one's argument, as often as there is one to be asked.
    """
    result = method(argument)
    while result is NotImplemented:
        if not others:
            raise TypeError(message)
        receiver, name, argument = others[:3]
        others = others[3:]
        found = special(receiver, name)
        if found is not None:
            result = found(argument)
    return result


def equate(
    method: Callable[[Any], Any], argument: Any, opposite: bool, others: tuple[Any, ...],
    left: Any, right: Any, equal: bool,
) -> Any:  # fmt: skip
    """`==` or `!=`: where no method knows, identity does; `equal`: what one object gives.

    `opposite`: the method says the opposite. `others`: what there is of the other operand: itself, the name of its
    method, that one's argument, and whether it says the opposite.
    """
    result = method(argument)
    while result is NotImplemented:
        if not others:
            return (left is right) is equal
        receiver, name, argument, opposite = others
        others = ()
        result = special(receiver, name)(argument)
    return not result if opposite else result


def fetch(compute: Callable[[], Any], receiver: Any, name: str) -> Any:
    """What a function computes, of a class that has `__getattr__` too."""
    try:
        return compute()
    except AttributeError:
        pass
    return missing(receiver, name)


def keep(function: Callable[[Any], Any], receiver: Any, name: str) -> Any:
    """A `cached_property`."""
    result = function(receiver)
    receiver.__dict__[name] = result
    return result


def discard(store: Callable[[], Any]) -> None:
    """What `setattr` calls."""
    store()


def fetch_or(receiver: Any, name: str, default: Any) -> Any:
    """`getattr` with a default."""
    try:
        return getattr(receiver, name)
    except AttributeError:
        return default


def exists(receiver: Any, name: str) -> bool:
    """`hasattr`."""
    try:
        getattr(receiver, name)
    except AttributeError:
        return False
    return True


def advance_or(iterator: Any, default: Any) -> Any:
    """`next` with a default."""
    try:
        return next(iterator)
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


def ahead(advance: Callable[[], Any], iterator: Any) -> Any:
    """What a loop goes on with: its instruction is made again with that."""
    try:
        value = advance()
    except StopIteration:
        return iter(())
    return Ahead(value, iterator)


def ask(method: Callable[[], Any], value: Any, name: str) -> Any:
    """What the built-in function gives that calls the special method, such as `len`."""
    return returned(value, name, method())


def outlast(method: Callable[[], Any], value: Any) -> bool:
    """The truth of what has a length."""
    return returned(value, "__len__", method()) > 0


def contain(method: Callable[[Any], Any], item: Any, wanted: bool) -> bool:
    """Does `item in container` have the truth `wanted`?"""
    if method(item):
        return wanted
    return not wanted


PROTOCOLS = (
    construct, operate, equate, fetch, keep, fetch_or, exists, discard, advance_or, ahead,
    ask, outlast, contain, Ahead.__init__,
)  # fmt: skip
#: Frames that users do not see, by the address of their code: to hash code is to read all of it.
HIDDEN = frozenset(id(f.__code__) for f in (*PROTOCOLS, *CONSUMERS.values(), *CONSUMING.values(), *STREAMS, first))
