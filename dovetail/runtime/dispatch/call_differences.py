"""What was different in the calls that an entry did not fit: the next capture takes it as varying."""

from __future__ import annotations

import weakref
from collections import Counter

from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.source import Computed, Item, Standing, path

#: What a container holds, which changes along with the key that a loop uses.
CONTENTS = (GuardKind.KEYS, GuardKind.LENGTH, GuardKind.CONTAINS)


def changed(failed: list) -> list[str]:
    """The names of the numbers, texts and sizes that changed, if they are all that keeps an entry from fitting.

    Containers may hold something else as well, where a number or text is a key. A float is named in any case: it
    chooses no path as integers do, and a rate may change along with other things.
    """
    guards = [f.guard for f in failed if not f.changed]
    if not all(g is not None and (_on_contents(g) or _on_module(g)) for g in guards):
        failed = [f for f in failed if f.changed and type(f.guard.payload) is float]
    return [name for f in failed for name in f.changed]


def changed_modules(found: list[list]) -> set[str]:
    """The names of the sources that have led to three different modules by now: what is alike in them shall do. In
    another round of a loop, to two."""
    others = Counter[str]()
    for failed in found:
        guards = [f.guard for f in failed if f.guard is not None]
        rounds = 1 + any(type(guard.source) is Standing for guard in guards)
        others.update({guard.source.name(): rounds for guard in guards if _on_module(guard)})
    return {name for name, count in others.items() if count > 1}


def changed_rounds(found: list[list]) -> set[str]:
    """The names of iterators in suspended loops that had come further, or less far, in other calls."""
    guards = [f.guard for failed in found for f in failed if f.guard is not None]
    return {guard.source.name() for guard in guards if type(guard.source) is Standing}


def _on_module(guard: Guard | None) -> bool:
    return guard is not None and guard.kind is GuardKind.ID and isinstance(guard.payload, weakref.ref)


def _on_contents(guard: Guard) -> bool:
    """Is it about what a container holds, or about the outcome of a test of what is known to change?"""
    looked_at = (guard.source, *(guard.payload if guard.kind is GuardKind.DISTINCT else ()))
    if guard.kind in CONTENTS or guard.kind is GuardKind.EQUAL and isinstance(guard.payload, (set, frozenset)):
        return True
    if guard.kind is GuardKind.ID and isinstance(guard.source, Computed):
        return True
    return any(isinstance(part, Item) for source in looked_at for part in path(source))
