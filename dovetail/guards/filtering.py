"""`guard_filter_fn`: the user says which guards are not worth checking, as of `torch.compile`.

The function gets a description of each guard, with the attributes that PyTorch's have, so those of `torch.compiler`
work (`skip_guard_on_globals_unsafe`, ...), and gives a list of bools. Guards on tensors, on sizes and on the state of
PyTorch stay whatever it says: machine code relies on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import torch

from dovetail.errors import InvalidArgument
from dovetail.guards.build import loaded_one_by_one
from dovetail.ir.captured import Captured
from dovetail.ir.guard import MISS, Guard, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Global, Globals, Source, path

ALWAYS = frozenset((GuardKind.TENSOR, GuardKind.SIZE, GuardKind.STATE))

#: What PyTorch calls a guard of each kind.
NAMES: Mapping[GuardKind, str] = {
    GuardKind.TYPE: "TYPE_MATCH", GuardKind.ID: "ID_MATCH", GuardKind.EQUAL: "EQUALS_MATCH",
    GuardKind.TENSOR: "TENSOR_MATCH", GuardKind.LENGTH: "SEQUENCE_LENGTH", GuardKind.KEYS: "DICT_KEYS_MATCH",
    GuardKind.HAS_ATTR: "HASATTR", GuardKind.CONTAINS: "DICT_CONTAINS", GuardKind.HAS_KEY: "DICT_CONTAINS",
    GuardKind.STATE: "GLOBAL_STATE", GuardKind.ALIAS: "DUPLICATE_INPUT", GuardKind.DISTINCT: "DUPLICATE_INPUT",
    GuardKind.DEFINITION: "CLOSURE_MATCH", GuardKind.CLASS_DICT: "CLASS_MATCH", GuardKind.SIZE: "SHAPE_ENV",
    GuardKind.OWN_LACKS: "NOT_PRESENT_IN_GENERIC_DICT",
}  # fmt: skip


@dataclass(frozen=True)
class DescribedSource:
    """Where a guard's value is, and the modules on the way to it."""

    name: str
    modules: Sequence[torch.nn.Module]

    def is_unspecialized_nn_module(self) -> bool:
        return bool(self.modules)

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return any(type(module).__module__.startswith("torch.nn.") for module in self.modules)


@dataclass(frozen=True)
class DescribedGuard:
    """The guard itself, as PyTorch's descriptions name it."""

    name: str
    source: DescribedSource


@dataclass(frozen=True)
class GuardDescription:
    """What a filter is shown of one guard."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: DescribedGuard = field(repr=False)


Filter = Callable[[list[GuardDescription]], Sequence[bool]]


def filtered(captured: Captured, wanted: Filter, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> Captured:
    """The region without the guards that the filter does not keep.

    Raises InvalidArgument where the filter raises, or gives something else than a bool for each guard.
    """
    shown = describe(captured, fn, args, kwargs)
    try:
        keeps = wanted(list(shown))
    except Exception as error:
        raise InvalidArgument(f"guard_filter_fn raised {type(error).__name__}: {error}") from error
    if not isinstance(keeps, (list, tuple)) or [type(keep) for keep in keeps] != [bool] * len(shown):
        raise InvalidArgument(f"guard_filter_fn must give a list of {len(shown)} bools, one a guard, not {keeps!r}")
    kept = tuple(g for g, keep in zip(captured.guards, keeps, strict=True) if keep or g.kind in ALWAYS)
    return replace(captured, guards=kept)


def describe(captured: Captured, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> list[GuardDescription]:
    """Each guard as the filter is shown it, in order. The values are those of this call."""
    needed = {part: None for guard in captured.guards for part in path(guard.source)}
    values = dict(zip(needed, loaded_one_by_one(captured, fn, list(needed), args, kwargs), strict=True))
    return [_described(guard, values) for guard in captured.guards]


def _described(guard: Guard, values: Mapping[Source, Any]) -> GuardDescription:
    way = list(path(guard.source))
    name = guard.source.name() if guard.source is not None else str(guard.payload[0])
    value = values[way[0]] if way else MISS
    modules = [values[part] for part in way if isinstance(values[part], torch.nn.Module)]
    kind = NAMES[guard.kind]
    return GuardDescription(
        name, value is not MISS, None if value is MISS else value, kind, (kind,),
        bool(way) and isinstance(way[-1], (Global, Globals)), DescribedGuard(name, DescribedSource(name, modules)),
    )  # fmt: skip
