"""Do an entry's guards hold in this call? Asked before the entry is built, which takes it for granted.

Most guards are about plain values, lengths, keys and tensors, and are answered here by comparing objects, in a
microsecond each. What that leaves open is asked of the text that the entry itself would run.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch

from dovetail import guards
from dovetail.ir.captured import Captured
from dovetail.ir.guard import ABSENT, Guard, GuardKind, TensorFacts
from dovetail.ir.varying import known_by_contents
from dovetail.kept.objects import PLAIN, written
from dovetail.kept.routes import Finder

_CONTAINERS = (dict, list, tuple, set, frozenset, OrderedDict, deque, str)
_KEYED = (dict, OrderedDict, defaultdict, set, frozenset)


def failing(captured: Captured, fn: Any, finder: Finder, args: tuple, kwargs: Mapping[str, Any]) -> list:
    """The guards that do not hold."""
    left = [guard for guard in captured.guards if not _shown(guard, finder)]
    return guards.failing(captured, fn, left, args, kwargs)


def by_identity(guarded: Sequence[Guard], names: Set[str]) -> bool:
    """Would an entry fit one module alone, where a path in `names` was seen to lead to several? Others would need
    entries of their own, up to the limit of entries; one that knows modules by what they hold serves them all."""
    return bool(names) and any(
        guard.kind is GuardKind.ID
        and isinstance(guard.payload, torch.nn.Module)
        and guard.source is not None
        and guard.source.name() in names
        and known_by_contents(guard.payload)
        for guard in guarded
    )


def _shown(guard: Guard, finder: Finder) -> bool:
    """Is it clear that it holds?"""
    quick, related = _QUICK.get(guard.kind), _RELATED.get(guard.kind)
    if guard.source is None or quick is None and related is None:
        return False
    try:
        value = finder.value(guard.source)
        return quick(value, guard.payload) if quick is not None else related(value, guard.payload, finder)  # type: ignore[misc]
    except Exception:  # whatever reading the path raises: the entry's own text decides
        return False


def _equal(value: Any, payload: Any) -> bool:
    if type(payload) is tuple and type(value) is tuple and len(value) == len(payload):
        return all(map(_equal, value, payload))
    return type(payload) in PLAIN and type(value) is type(payload) and written(value) == written(payload)


def _contains(value: Any, payload: Any) -> bool:
    return type(value) in _CONTAINERS and type(payload[0]) in PLAIN and (payload[0] in value) is payload[1]


def _keys(value: Any, payload: Any) -> bool:
    return type(value) in _KEYED and all(type(key) in PLAIN for key in payload) and tuple(value) == payload


def _class_dict(cls: Any, payload: Any) -> bool:
    name, member = payload
    return cls.__dict__.get(name, ABSENT) is member


def _definition(function: Any, payload: Any) -> bool:
    code, defaults, keywords = payload
    return function.__code__ is code and function.__defaults__ is defaults and function.__kwdefaults__ == keywords


def _tensor(tensor: Any, facts: TensorFacts) -> bool:
    cls: Any = facts.cls
    if type(tensor) is not cls or tensor.layout is not facts.layout or tensor.layout is not torch.strided:
        return False
    plain = all(type(n) is int for n in (*facts.sizes, *facts.strides))
    return (
        plain and tuple(tensor.shape) == tuple(facts.sizes) and tensor.stride() == tuple(facts.strides)
        and tensor.dtype is facts.dtype and tensor.device == facts.device
        and tensor.requires_grad is facts.requires_grad and facts.offset in (None, tensor.storage_offset())
        and (facts.dispatch_keys is None or torch._C._dispatch_keys(tensor) == facts.dispatch_keys)
    )  # fmt: skip


def _has_key(table: Any, payload: Any, finder: Finder) -> bool:
    key, present = payload
    return type(table) in _KEYED and (finder.value(key) in table) is present


def _distinct(value: Any, others: Any, finder: Finder) -> bool:
    return len({id(value), *(id(finder.value(other)) for other in others)}) == len(others) + 1


_QUICK: dict[GuardKind, Callable[[Any, Any], bool]] = {
    GuardKind.ID: lambda value, payload: value is payload,
    GuardKind.TYPE: lambda value, payload: type(value) is payload,
    GuardKind.EQUAL: _equal,
    GuardKind.LENGTH: lambda value, payload: type(value) in _CONTAINERS and len(value) == payload,
    GuardKind.KEYS: _keys,
    GuardKind.CONTAINS: _contains,
    GuardKind.CLASS_DICT: _class_dict,
    GuardKind.DEFINITION: _definition,
    GuardKind.OWN_LACKS: lambda value, key: key not in object.__getattribute__(value, "__dict__"),
    GuardKind.TENSOR: _tensor,
}
#: What compares the value with what other paths lead to.
_RELATED: dict[GuardKind, Callable[[Any, Any, Finder], bool]] = {
    GuardKind.HAS_KEY: _has_key,
    GuardKind.ALIAS: lambda value, other, finder: value is finder.value(other),
    GuardKind.DISTINCT: _distinct,
}
