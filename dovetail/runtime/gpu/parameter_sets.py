"""Calls of a program with the same parameters: what the first one was given, and which inputs a recording expects where
they lie."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

owned_by_pools: set[int] = set()  # addresses of results of recordings


class ParameterSet:
    """`one` of the parameters is enough to tell whether there will be more calls."""

    def __init__(self, one: torch.Tensor | None) -> None:
        self.one = None if one is None else weakref.ref(one)
        self.seen: dict[Any, dict[int, int]] = {}  # addresses of the first call, by key
        self.recordings: dict[Any, Any] = {}
        self.moves: dict[Any, int] = {}
        self.waited: set[Any] = set()  # keys
        self.name = object()

    def is_over(self) -> bool:
        return self.one is not None and self.one() is None

    def gives(self, result: torch.Tensor) -> None:
        """In a call without its recording, which will be made."""
        result.untyped_storage().giver = self.name  # type: ignore[attr-defined]

    def waits(self, key: Any, inputs: Sequence[Any]) -> bool:
        """Has another one given an input in such a call? Once for each key."""
        givers = {getattr(i.untyped_storage(), "giver", None) for i in inputs if isinstance(i, torch.Tensor)}
        if key in self.waited or givers <= {None, self.name}:
            return False
        self.waited.add(key)
        return True

    def places(self, key: Any, inputs: Sequence[Any]) -> set[int]:
        """Inputs that lie where they did in the first call, or in the pool of a recording. Where most parameters do
        not, as under `fully_shard`, the others came to lie there by chance."""
        before = self.seen[key]
        same = {k for k, address in addresses(inputs).items() if before.get(k) == address or address in owned_by_pools}
        parameters = {k for k, i in enumerate(inputs) if isinstance(i, torch.nn.Parameter)}
        return same - parameters if len(parameters & same) * 2 < len(parameters) else same


def addresses(inputs: Sequence[Any]) -> dict[int, int]:
    return {k: i.data_ptr() for k, i in enumerate(inputs) if isinstance(i, torch.Tensor)}
