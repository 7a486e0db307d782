"""An iterator in the middle of a loop, as data that capture goes on from, and as the Python object.

    for layer in self.layers:        after a graph break in the second round:
        x = layer(x)                 Walk(<list_iterator>, "sequence", (self.layers,), 2)

As long as nobody else has the Python object, and nobody has advanced it, what follows is traced from the data. Plain
Python takes the object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from dovetail.ir.source import Attr, Item, Source, Standing


class Walk:
    """`native`, which has come to `position`. `parts`: what it walks; of `enumerate` and its like, other walks."""

    __slots__ = ("kind", "native", "parts", "position")

    def __init__(self, native: Any, kind: str, parts: tuple, position: int) -> None:
        self.native, self.kind, self.parts, self.position = native, kind, parts, position

    def stands(self, owners: int = 0) -> bool:
        """Is the object where the data says, with nobody who could advance it? `owners`: other walks that have it."""
        if sys.getrefcount(self.native) != _ALONE + owners:
            return False
        place = PLACES.get(self.kind)
        return all(part.stands(1) for part in self.parts if type(part) is Walk) and (place is None or place(self))


def rounds(walk: Walk, source: Source) -> Iterator[str]:
    """The names of how far it has come, and of how far the walks have that it is made of."""
    yield Standing(source).name()
    for k, part in enumerate(walk.parts):
        if type(part) is Walk:
            yield from rounds(part, Item(Attr(source, "parts"), k))


def native(value: Any) -> Any:
    """The Python object: of a walk its own."""
    return value.native if type(value) is Walk else value


def _before(walk: Walk) -> bool:
    hint: int = walk.native.__length_hint__()
    return hint == max(len(walk.parts[0]) - walk.position, 0)


def _backwards(walk: Walk) -> bool:
    hint: int = walk.native.__length_hint__()
    return hint == walk.position + 1 <= len(walk.parts[0])


def _in_dict(walk: Walk) -> bool:
    """Keys may have been exchanged. Such an iterator says what is left of it."""
    table, kind = walk.parts
    try:
        left = walk.native.__reduce__()[1][0]
    except RuntimeError:  # its size has changed
        return False
    expected = list(islice(getattr(table, kind)(), walk.position, None))
    if kind == "items":
        left, expected = ([part for pair in pairs for part in pair] for pairs in (left, expected))
    return len(left) == len(expected) and all(a is b for a, b in zip(left, expected))


#: By the kind: does the object stand there? Others stand where their parts do.
PLACES: dict[str, Callable[[Walk], bool]] = {
    "sequence": _before, "constant": _before, "reversed": _backwards, "dictionary": _in_dict,
}  # fmt: skip


def _alone() -> int:
    """The count of references to an object that one walk has, as `stands` sees it."""
    walk = Walk(object(), "", (), 0)
    return sys.getrefcount(walk.native)


_ALONE = _alone()
