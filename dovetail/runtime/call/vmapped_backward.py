"""A backward pass for many gradients at once (`is_grads_batched`, a vectorized Jacobian): one element after the other.

Kernels have no address for a batched tensor. PyTorch's own rules for batches would do for the recorded operators, but
not for the layouts that compiled code chooses: that of group norm's backward reads one layout as another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_functorch = torch._C._functorch


def is_batched(gradient: Any) -> bool:
    """Does it stand for a batch of gradients?"""
    return gradient is not None and (
        _functorch.is_legacy_batchedtensor(gradient) or _functorch.is_batchedtensor(gradient)
    )


def one_by_one(backward: Callable[[list[Any]], Sequence[Any]], gradients: Sequence[Any]) -> tuple[Any, ...]:
    """`backward` of each element of the innermost batch; what it gives is batched as the gradients were."""
    legacy = any(g is not None and _functorch.is_legacy_batchedtensor(g) for g in gradients)
    level = _legacy_level() if legacy else max(map(_functorch.maybe_get_level, filter(is_batched, gradients)))
    split = _without_legacy_batch if legacy else _without_batch
    parts = [split(g, level) if is_batched(g) else None for g in gradients]
    size = next(len(p) for p in parts if p is not None)
    found = []
    for k in range(size):  # never 0: PyTorch refuses that
        given = [g if p is None else p[k] for g, p in zip(gradients, parts)]
        found.append(one_by_one(backward, given) if any(map(is_batched, given)) else backward(given))
    join = torch._add_batch_dim if legacy else _functorch._add_batch_dim
    return tuple(None if each[0] is None else join(torch.stack(each), 0, level) for each in zip(*found))


def _without_batch(gradient: torch.Tensor, level: int) -> torch.Tensor | None:
    """The elements along the first dimension; None if it is no batch at this level."""
    value, place = _functorch._unwrap_batched(gradient, level)
    return None if place is None else value.movedim(place, 0)


def _without_legacy_batch(gradient: torch.Tensor, level: int) -> torch.Tensor:
    return torch._remove_batch_dim(gradient, level, 1, 0)


def _legacy_level() -> int:
    """Of the innermost batch that the engine's own kind of batching has open."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level
