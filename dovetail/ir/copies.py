"""Inputs like those of a call, for runs that the program must not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Memory = dict[int, torch.UntypedStorage]  # copies, by where the originals are


class Begin(torch.autograd.Function):
    """Gives a tensor a history that begins with a leaf, without being a view of it: it may be written to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, tensor: list[torch.Tensor]) -> torch.Tensor:
        """A tensor over the memory of `tensor`, which stands in a list so that autograd sees no view of it."""
        return _over(tensor[0].untyped_storage(), tensor[0])

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradient goes to the leaf."""
        return gradient, None


def copies(values: Sequence[Any]) -> tuple[list, list[torch.Tensor]]:
    """Tensors of their own in the place of tensors, and the leaves among what they are computed from.

    They are laid out as the originals are, share memory with each other where those do, and have a history where those
    have one. Anything else is as it is.
    """
    memory: Memory = {}
    made, leaves = [], []
    for value in values:
        copy = _copied(value, memory) if isinstance(value, torch.Tensor) else value
        if isinstance(copy, torch.Tensor) and value.requires_grad:
            leaves.append(copy.requires_grad_() if value.is_leaf else torch.empty_like(copy, requires_grad=True))
            copy = copy if value.is_leaf else with_history(copy, leaves[-1])
        made.append(copy)
    return made, leaves


def copied(value: Any) -> Any:
    """The same for one value alone."""
    return copies([value])[0][0]


def with_history(tensor: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """The same memory, as something that was computed from the leaf."""
    with torch.enable_grad():
        made: torch.Tensor = Begin.apply(leaf, [tensor])
        return made


def _copied(value: torch.Tensor, memory: Memory) -> torch.Tensor:
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not plain or value.is_meta:
        return value.detach().clone()
    for is_lazy, flipped in ((value.is_conj(), torch.conj), (value.is_neg(), torch._neg_view)):
        if is_lazy:
            return flipped(_copied(flipped(value.detach()), memory))
    storage = value.untyped_storage()
    if storage.data_ptr() not in memory:
        memory[storage.data_ptr()] = storage.clone()
    return _over(memory[storage.data_ptr()], value)


def _over(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    made: Any = torch.empty(0, dtype=like.dtype, device=like.device)
    found: torch.Tensor = made.set_(storage, like.storage_offset(), like.shape, like.stride())
    return found
