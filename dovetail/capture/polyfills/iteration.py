"""Built-in functions that use up a generator, as Python code: a graph can end inside the generator's frame.

They stand in only where the running instruction calls them with an iterator that runs user code. So do generators for
`enumerate`, `map` and their like where nothing but the instruction has such an iterator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def listed(iterable: Iterable[Any]) -> list:
    out = []
    for item in iterable:
        out.append(item)
    return out


def as_tuple(iterable: Iterable[Any]) -> tuple:
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


def as_frozenset(iterable: Iterable[Any]) -> frozenset[Any]:
    return frozenset(as_set(iterable))


def as_dict(iterable: Iterable[Any]) -> dict:
    out: dict = {}
    updated(out, iterable)
    return out


def ordered(iterable: Iterable[Any], *, key: Any = None, reverse: Any = False) -> list:
    return sorted(listed(iterable), key=key, reverse=reverse)


def least(iterable: Iterable[Any], *, key: Any = None, **default: Any) -> Any:
    items, keys = [], []
    for item in iterable:
        items.append(item)
        if key is not None:
            keys.append(key(item))
    if not keys:
        return min(items, **default)
    return items[min(range(len(keys)), key=keys.__getitem__)]


def greatest(iterable: Iterable[Any], *, key: Any = None, **default: Any) -> Any:
    items, keys = [], []
    for item in iterable:
        items.append(item)
        if key is not None:
            keys.append(key(item))
    if not keys:
        return max(items, **default)
    return items[max(range(len(keys)), key=keys.__getitem__)]


def joined(text: str, iterable: Iterable[str]) -> str:
    return text.join(listed(iterable))


def extended(items: list, iterable: Iterable[Any]) -> None:
    for item in iterable:
        list.append(items, item)


def taken_in(items: set[Any], iterable: Iterable[Any]) -> None:
    for item in iterable:
        set.add(items, item)


def updated(entries: dict, iterable: Iterable[Any]) -> None:
    count = 0
    for item in iterable:
        try:
            pair = tuple(item)
        except TypeError:
            text = f"cannot convert dictionary update sequence element #{count} to a sequence"
            raise TypeError(text) from None
        if len(pair) != 2:
            raise ValueError(
                f"dictionary update sequence element #{count} has length {len(pair)}; 2 is required"
            )
        dict.__setitem__(entries, pair[0], pair[1])
        count += 1  # noqa: SIM113 - the graph can end in a generator that this loop itself reads


def as_deque(iterable: Iterable[Any], maxlen: Any = None) -> deque[Any]:
    out: deque[Any] = deque(maxlen=maxlen)
    for item in iterable:
        out.append(item)
    return out


def first(iterable: Iterable[Any], count: int) -> list:
    out: list = []
    for item in iterable:
        out.append(item)
        if len(out) == count:
            break
    return out


def mapped(function: Callable[..., Any], *iterators: Iterator[Any]) -> Iterator[Any]:
    for row in zip(*iterators):
        yield function(*row)


def mapped_one(function: Callable[..., Any], iterator: Iterator[Any]) -> Iterator[Any]:
    for item in iterator:
        yield function(item)


def enumerated(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    for item in iterator:
        yield count, item
        count += 1


def filtered(function: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    for item in iterator:
        if item if function is None else function(item):
            yield item


def zipped(left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    for item in left:
        try:
            other = next(right)
        except StopIteration:
            return
        yield item, other


CONSUMERS = {
    list: listed, tuple: as_tuple, set: as_set, frozenset: as_frozenset, dict: as_dict, sum: summed, any: some,
    all: every, sorted: ordered, min: least, max: greatest, deque: as_deque,
}  # fmt: skip
#: Methods, whose receiver is the first argument.
CONSUMING = {str.join: joined, list.extend: extended, dict.update: updated, set.update: taken_in}
#: They take keyword arguments, or more than one argument.
WITH_OPTIONS = (sorted, min, max, deque)
WITH_MORE = (sum, deque)
#: What iterators that only pass items on do, as generators.
STREAMS = (mapped, mapped_one, enumerated, filtered, zipped)
