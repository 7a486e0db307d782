"""Sets of parameters that a recorded program serves, as those of equal layers."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class ParameterSet:
    """Calls with the same parameters, of which `one` is enough to tell whether there will be more."""

    def __init__(self, one: torch.Tensor | None) -> None:
        self.one = None if one is None else weakref.ref(one)
        self.seen: dict[Any, dict[int, int]] = {}  # addresses of the first call, by key
        self.recordings: dict[Any, Any] = {}
        self.moves: dict[Any, int] = {}

    def is_over(self) -> bool:
        return self.one is not None and self.one() is None
