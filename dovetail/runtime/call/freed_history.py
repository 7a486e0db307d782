"""Results of a program that ran its own backward pass: they require gradients, and there are none to be had again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def freed_history(call: Callable[..., Sequence[Any]], places: Sequence[int]) -> Callable[..., Sequence[Any]]:
    """`call` with the outputs at `places` marked as such."""
    anchor = torch.empty(0, requires_grad=True, device=HOST)

    def marked(*inputs: Any) -> Sequence[Any]:
        outputs = list(call(*inputs))
        with torch.enable_grad():
            for place in places:
                outputs[place] = _FreedHistory.apply(anchor, outputs[place])
        return tuple(outputs)

    return marked
