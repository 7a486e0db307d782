"""After how many elements a sequence repeats itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

FOLLOWERS = 8  # equal elements that one is compared with
TRIED = 6  # periods


def periods(sequence: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """`(period, start, end)`, the longest stretch first: within it each element equals the one a period later."""
    found = []
    for period in _gaps(sequence):
        equal = [a == b for a, b in zip(sequence, sequence[period:], strict=False)]
        start, end = longest(len(equal), equal.__getitem__)
        if end - start >= period:
            found.append((period, start, end))
    yield from sorted(
        found, key=lambda each: (each[1] - each[2] - each[0], each[0])
    )


def _gaps(sequence: Sequence[Any]) -> list[int]:
    """The commonest distances between equal elements."""
    places: dict[Any, list[int]] = {}
    gaps: Counter[int] = Counter()
    for position, element in enumerate(sequence):
        before = places.setdefault(element, [])
        gaps.update(position - k for k in before[-FOLLOWERS:])
        before.append(position)
    return [gap for gap, _ in gaps.most_common(TRIED)]


def longest(
    count: int, holds: Callable[[int], bool], start: int = 0
) -> tuple[int, int]:
    """The longest stretch of `range(start, count)` that something holds for."""
    best, begun = (start, start), start
    for k in range(start, count + 1):
        if k == count or not holds(k):
            best = max(best, (begun, k), key=lambda each: each[1] - each[0])
            begun = k + 1
    return best
