"""Results of a program that ran its own backward pass: they require gradients, and there are none to be had again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.devices import HOST


class _FreedHistory(torch.autograd.Function):
    """A tensor whose history has been freed."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
            "you need to access saved tensors after calling backward."
        )


def anchor() -> torch.Tensor:
    """What gives such results a history."""
    return torch.empty(0, requires_grad=True, device=HOST)


def mark_freed(anchor: torch.Tensor, outputs: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """The outputs, those at `places` as such."""
    marked = list(outputs)
    with torch.enable_grad():
        for place in places:
            marked[place] = _FreedHistory.apply(anchor, marked[place])
    return tuple(marked)
