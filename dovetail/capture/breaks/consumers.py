"""Built-in functions that use up a generator, as Python code: a graph can end inside the generator's frame.

They stand in only where the running instruction calls them with an iterator that runs user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def listed(iterable: Iterable[Any]) -> list[Any]:
    out = []
    for item in iterable:
        out.append(item)
    return out


def as_tuple(iterable: Iterable[Any]) -> tuple[Any, ...]:
    out = []
    for item in iterable:
        out.append(item)
    return tuple(out)


def as_set(iterable: Iterable[Any]) -> set[Any]:
    out = set()
    for item in iterable:
        out.add(item)
    return out


def summed(iterable: Iterable[Any], start: Any = 0) -> Any:
    """The items first: the sum of floats is more exact than adding one after the other."""
    out = []
    for item in iterable:
        out.append(item)
    return sum(out, start)


def some(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110 - the call it stands in for
        if item:
            return True
    return False


def every(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def mapped(function: Callable[..., Any], *iterators: Iterator[Any]) -> Iterator[Any]:
    for row in zip(*iterators):
        yield function(*row)


CONSUMERS = {list: listed, tuple: as_tuple, set: as_set, sum: summed, any: some, all: every}
