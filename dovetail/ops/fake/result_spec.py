"""What a shape rule answers with, and what else a tensor has.

A rule takes the operator's arguments and returns a Spec (or a tuple of them), or NotImplemented to
let PyTorch's meta kernel answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch

from dovetail.ops.fake.rules.layout import contiguous


class Spec(NamedTuple):
    """Metadata of one result."""

    sizes: tuple
    strides: tuple
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0


def fresh(sizes: tuple, strides: tuple, like: torch.Tensor) -> Spec:
    """Memory of its own with the dtype and on the device of `like`."""
    return Spec(sizes, strides, like.dtype, like.device)


def in_one_piece(sizes: Iterable[Any], like: torch.Tensor, dtype: torch.dtype | None = None) -> Spec:
    """A fresh result in rows, on the device of `like` and of its type unless that is told."""
    sizes = tuple(sizes)
    return Spec(sizes, contiguous(sizes), dtype or like.dtype, like.device)


class ForOverload(NamedTuple):
    """A rule that `make` gives for each overload of an operator."""

    make: Callable[[Any], Callable[..., Any]]


def meta(sizes: Any, strides: Any, dtype: torch.dtype, offset: Any = 0) -> torch.Tensor:
    """A `meta` tensor in a storage that is large enough: PyTorch would compute the size of a symbolic one."""
    with torch._C._DisableTorchDispatch():
        return torch.empty(ENOUGH, dtype=dtype, device="meta").as_strided(sizes, strides, offset)


ENOUGH = 1 << 48  # elements of a storage in which something of symbolic sizes lies

T = TypeVar("T", bound=torch.Tensor)


def marked(tensor: T, like: torch.Tensor) -> T:
    """`tensor` with the lazy conjugation and negation of `like`."""
    if like.is_conj():
        torch._C._set_conj(tensor, True)
    if like.is_neg():
        torch._C._set_neg(tensor, True)
    return tensor
