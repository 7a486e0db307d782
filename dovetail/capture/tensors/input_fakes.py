"""Fakes of tensors from outside, with a history where those have one."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ops.fake import to_fake


class _History(torch.autograd.Function):
    """Gives a fake tensor that is no leaf, so that the program may write to it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return to_fake(leaf, leaf=False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def as_input(real: torch.Tensor, layout: Any = None) -> Any:
    """The fake of a tensor from outside: a leaf if that is one. A view with a history has a leaf as well."""
    fake: Any = to_fake(real, layout=layout)
    if not real.requires_grad or real._is_view() or real.is_leaf:  # some views refuse to say whether they are leaves
        return fake
    if torch.is_inference_mode_enabled() or torch._C._are_functorch_transforms_active():
        return fake
    with torch.enable_grad():
        return _History.apply(fake)
