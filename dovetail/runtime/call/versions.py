"""What a backward pass still needs must be what it was when it goes on, as it must in eager mode."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each has been written to."""
    return [0 if t.is_inference() else t._version for t in tensors]


def unchanged(tensors: Sequence[torch.Tensor], seen: list[int]) -> None:
    """Raises as PyTorch does where one has been written to since its versions were `seen`."""
    if versions(tensors) != seen:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation, while the "
            "backward pass of a compiled function was under way"
        )
