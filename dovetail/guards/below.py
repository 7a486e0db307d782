"""What of an entry the bulk check takes on: guards on paths below held objects, and the objects that the graph takes.

The bulk check relies on the very objects. So identities that guards compare are settled where each of them is below
and guarded in its own right; those of others (arguments) are kept apart from them in every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

import torch

from dovetail.guards.slots import NotSlotted, Resolver, anchored
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Source

_IDENTITIES = (GuardKind.ALIAS, GuardKind.DISTINCT)
_COMPARING = (*_IDENTITIES, GuardKind.SIZE)


@dataclass
class BulkSplit:
    """`below` are the bulk check's guards by identity, the rest of `guards` is not. The objects of `groups[k]` must not
    be among those that `others[k]` lead to."""

    guards: Sequence[Guard]
    below: dict[int, Guard] = field(default_factory=dict)
    groups: list[list[Source]] = field(default_factory=list)
    others: list[list[Source]] = field(default_factory=list)


def belongs_below(guard: Guard, resolver: Resolver) -> bool:
    """Not numbers that may change from call to call, nor what compares objects."""
    kind = guard.kind
    if kind in _COMPARING or not anchored(guard.source, resolver.anchored):
        return False
    varies = kind is GuardKind.TYPE and guard.payload in (int, float, str, bytes, complex)
    varies = varies or kind is GuardKind.HAS_KEY and not anchored(guard.payload[0], resolver.anchored)
    return not varies and (kind is not GuardKind.TENSOR or all(isinstance(n, int) for n in guard.payload.sizes))


def separate(guards: Sequence[Guard], below: Sequence[Guard], resolver: Resolver) -> BulkSplit:
    """The guards with comparisons of objects taken apart; `below` are those that belong there anyway."""
    found = BulkSplit([], {id(g): g for g in below})
    compared = {source for g in guards if g.kind in _IDENTITIES for source in _compared(g)}
    known = [g.source for g in below if g.source is not None and g.source in compared]
    settled = {source for source in known if _leads(resolver, source)}
    for guard in guards:
        parts = _taken_apart(guard, settled, resolver, found) if guard.kind in _IDENTITIES else None
        if parts is None:
            found.guards.append(guard)  # type: ignore[attr-defined]
        else:
            found.below.update((id(part), part) for part in parts)
    return found


def _compared(guard: Guard) -> Sequence[Source | None]:
    return (guard.source, *(guard.payload if guard.kind is GuardKind.DISTINCT else (guard.payload,)))


def _taken_apart(guard: Guard, settled: set[Any], resolver: Resolver, found: BulkSplit) -> list[Guard] | None:
    """The part of the comparison that the bulk check takes on; None if it can take on nothing."""
    if guard.kind is GuardKind.ALIAS:
        source = guard.source
        known = guard.payload in settled and anchored(source, resolver.anchored)
        known = known and source is not None and _leads(resolver, source)
        return [guard] if known else None
    every = (guard.source, *guard.payload)
    inside = [source for source in every if source in settled]
    if len(inside) < 2:
        return None
    outside = [source for source in every if source not in settled]
    if outside:
        found.groups.append(inside)
        found.others.append(outside)
    return [replace(guard, source=inside[0], payload=tuple(inside[1:]))]


def loadable(inputs: Iterable[Any], below: Iterable[Guard], resolver: Resolver) -> list[Source]:
    """The paths to tensors of the graph's inputs that the bulk check can load."""
    settled = {g.source for g in below if g.kind is GuardKind.TENSOR}
    given = dict.fromkeys(i.source for i in inputs if not i.static and isinstance(i.fake, torch.Tensor))
    return [source for source in given if source in settled and _leads(resolver, source)]


def _leads(resolver: Resolver, source: Source) -> bool:
    try:
        resolver.value(source)
    except NotSlotted:
        return False
    return True
