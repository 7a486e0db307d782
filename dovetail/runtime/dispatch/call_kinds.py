"""Calls of one kind: tensors of the same dtypes, devices, layouts and ranks; grad mode, autocast, a module's mode.

Such facts take few values in one program, and each needs its own code; lengths and numbers may be others in every call.
So `recompile_limit` is about the entries for one kind of call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import torch

from dovetail.ir.varying import facts

#: So many times `recompile_limit` entries are there at most, whatever the kinds.
MOST_KINDS = 8
#: So many outlines are kept of calls for which there is no room.
MOST_FULL = 64


def of_this_kind(found: list[list]) -> list[list]:
    """Why entries for calls of this call's kind do not fit it."""
    return [failed for failed in found if not any(f.other_kind for f in failed)]


def changed_often(found: list[list]) -> set[str]:
    """The facts that had several values in these entries, all of them other ones than now.

    That some of the entries differ in one fact says little: they may all expect the same.
    """
    expected: dict[str, set[Hashable]] = {}
    for guard in (f.guard for failed in found for f in failed if f.guard is not None):
        for name in facts(guard):
            expected.setdefault(name, set()).add((guard.source.name(), _hashable(guard.payload)))
    return {name for name, values in expected.items() if len(values) > 1}


def _hashable(payload: Any) -> Hashable:
    try:
        value = frozenset(payload) if isinstance(payload, set) else payload
        return type(payload), hash(value), value
    except TypeError:
        return id(payload)


def outline(args: tuple, kwargs: Mapping[str, Any], state: Hashable) -> Hashable:
    """What a glance at the arguments tells of the kind of a call: no guard is evaluated for it."""
    return state, frozenset(_look(v) for value in (*args, *kwargs.values()) for v in _members(value))


def _members(value: Any) -> Iterator[Any]:
    if type(value) in (list, tuple):
        yield from value
    elif type(value) is dict:
        yield from value.values()
    else:
        yield value


def _look(v: Any) -> Hashable:
    if type(v) not in (torch.Tensor, torch.nn.Parameter):
        return None
    return v.dtype, v.device, v.layout, v.ndim, v.requires_grad
