"""What a shape rule answers with, and what else a tensor has."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch


class Spec(NamedTuple):
    """Metadata of one result."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0


def fresh(sizes: tuple[Any, ...], strides: tuple[Any, ...], like: torch.Tensor) -> Spec:
    """Memory of its own with the dtype and on the device of `like`."""
    return Spec(sizes, strides, like.dtype, like.device)


T = TypeVar("T", bound=torch.Tensor)


def marked(tensor: T, like: torch.Tensor) -> T:
    """`tensor` with the lazy conjugation and negation of `like`."""
    if like.is_conj():
        torch._C._set_conj(tensor, True)
    if like.is_neg():
        torch._C._set_neg(tensor, True)
    return tensor
