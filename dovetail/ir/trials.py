"""A call of an operator that is tried out on a device, to know how long it takes there."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class AnyTensor:
    """Stands for a tensor of any numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class TimedCall:
    """`args`: numbers, tuples, None, and `AnyTensor`s."""

    operator: Any
    args: tuple[Any, ...]
