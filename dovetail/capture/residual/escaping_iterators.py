"""Iterators of itertools that leave the compiled function, made of the generators that stand for them while capturing.

    rest = chain(a, b); next(rest); return rest     ->      chain(generator of what is left)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any


def _second(first: Any, second: Any) -> Any:
    return second


def _same(item: Any) -> Any:
    return item


def _always(item: Any) -> bool:
    return True


def _never(item: Any) -> bool:
    return False


#: Those that give, of what another iterator gives, all of it.
REST: dict[type, Callable[[Iterator[Any]], Any]] = {
    itertools.chain: itertools.chain,
    itertools.islice: lambda rest: itertools.islice(rest, None),
    itertools.accumulate: lambda rest: itertools.accumulate(rest, _second),
    itertools.cycle: itertools.cycle,
    itertools.compress: lambda rest: itertools.compress(rest, itertools.repeat(True)),
    itertools.starmap: lambda rest: itertools.starmap(_same, zip(rest)),  # noqa: RUF058 (for its class)
    itertools.takewhile: lambda rest: itertools.takewhile(_always, rest),
    itertools.dropwhile: lambda rest: itertools.dropwhile(_never, rest),
    itertools.filterfalse: lambda rest: itertools.filterfalse(_never, rest),
}

#: Those of the others that can come to their end.
ENDED: dict[type, Callable[[], Any]] = {
    itertools.repeat: lambda: itertools.repeat(None, 0),
    itertools.product: lambda: itertools.product(()),
    itertools.permutations: lambda: itertools.permutations((), 1),
    itertools.combinations: lambda: itertools.combinations((), 1),
    itertools.combinations_with_replacement: lambda: itertools.combinations_with_replacement((), 1),
    itertools.zip_longest: lambda: itertools.zip_longest(()),
    itertools.pairwise: lambda: itertools.pairwise(()),
    itertools.groupby: lambda: itertools.groupby(()),
}


def ended(cls: type) -> Any:
    """An iterator of this class that has come to its end."""
    return ENDED[cls]() if cls in ENDED else REST[cls](iter(()))
