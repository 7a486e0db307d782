"""Masks that are computed twice of the same tensors: `x[~m]` and `y[~m]` have one size."""

from __future__ import annotations

from typing import Any

import torch


class Masks:
    """The masks of one compilation, by what they are computed of."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Any, torch.Tensor]] = {}  # of operator and arguments, which are kept: the first
        self.twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # of a later one's id: itself and the first

    def note(self, func: Any, args: tuple, kwargs: dict[str, Any], mask: torch.Tensor) -> None:
        """An operator without effects has made `mask`."""
        key = (func, *map(_part, args), *kwargs, *map(_part, kwargs.values()))
        if None not in key and mask._version == 0:
            _, first = self.made.setdefault(key, ((args, kwargs), mask))
            if first is not mask:
                self.twins[id(mask)] = mask, first

    def first(self, mask: torch.Tensor) -> torch.Tensor:
        """A mask with the same values, as long as nothing has written to either: one for all of these."""
        _, first = self.twins.get(id(mask), (mask, mask))
        return first if mask._version == first._version == 0 else mask


def _part(value: Any) -> Any:
    """What an argument is; None where nobody can tell."""
    if isinstance(value, torch.Tensor):
        return None if value.is_inference() else (id(value), value._version)
    return (type(value), value) if type(value) in (int, float, bool) else None
