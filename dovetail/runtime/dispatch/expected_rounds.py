"""What is known to change before calls have shown it: loops that come back to where a tensor's value decides.

    for layer in self.layers:
        if torch.rand([]) < self.p: continue        both ways are gone in other rounds, with other layers
        x = layer(x)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any

import torch

from dovetail.ir.captured import Continuation
from dovetail.ir.source import Arg, Item, Source
from dovetail.ir.walks import Walk, rounds


def expected_rounds(fn: Callable[..., Any], args: Sequence[Any]) -> set[str]:
    """The names of iterators in suspended loops that have further rounds, and of modules that they have given."""
    rest: Continuation | None = getattr(fn, "_dovetail_continuation", None)
    if rest is None or not rest.decided:
        return set()
    given = dict(zip(rest.parameters(), args, strict=True))
    walks = {name: value for name, value in given.items() if type(value) is Walk and all(map(_left, _leaves(value)))}
    passed = {id(item) for walk in walks.values() for leaf in _leaves(walk) for item in _items(leaf)}
    found = [each for name, value in given.items() for each in _modules(value, Arg(name))]
    modules = {name for name, module in found if id(module) in passed}
    return modules.union(*(rounds(walk, Arg(name)) for name, walk in walks.items()))


def _modules(value: Any, source: Source) -> Iterator[tuple[str, torch.nn.Module]]:
    """Also those in what `enumerate`, `zip` and `items` give."""
    if isinstance(value, torch.nn.Module):
        yield source.name(), value
    elif type(value) is tuple:
        for k, part in enumerate(value):
            yield from _modules(part, Item(source, k))


def _leaves(walk: Walk) -> Iterator[Walk]:
    """What walks containers, of `enumerate` and its like."""
    inner = [part for part in walk.parts if type(part) is Walk]
    if not inner:
        yield walk
    for part in inner:
        yield from _leaves(part)


def _left(walk: Walk) -> bool:
    return length_hint(walk.native, 0) > 0


def _items(walk: Walk) -> Sequence[Any]:
    if walk.kind == "dictionary":
        return list(walk.parts[0].values())
    return walk.parts[0] if walk.kind in ("sequence", "reversed") else ()
