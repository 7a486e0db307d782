"""What a shape rule answers with."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class Spec(NamedTuple):
    """Metadata of one result."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0


def fresh(sizes: tuple[Any, ...], strides: tuple[Any, ...], like: torch.Tensor, dtype: torch.dtype | None = None) -> Spec:
    """Memory of its own on the device of `like`, and with its dtype unless one is given."""
    return Spec(sizes, strides, dtype or like.dtype, like.device)
