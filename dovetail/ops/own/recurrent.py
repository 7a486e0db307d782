"""`dovetail::recurrent`: recurrent layers as one operator, for any number of time steps.

PyTorch itself writes out every step of these layers, for which their number has to be known. The operator calls
PyTorch's function when it runs; its derivative runs the function again and lets PyTorch's engine differentiate it.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ops.own.library import library

_SETTINGS = "bool has_biases, int layers, bool train, bool bidirectional"
LIBRARY = library(__name__)
LIBRARY.define(f"recurrent(str kind, Tensor x, Tensor[] hidden, Tensor[] weights, {_SETTINGS}) -> Tensor[]")
LIBRARY.define(
    "recurrent_backward(Tensor?[] gradients, str kind, Tensor x, Tensor[] hidden, Tensor[] weights, "
    f"{_SETTINGS}) -> Tensor[]"
)
recurrent: Any = torch.ops.dovetail.recurrent.default
_backward: Any = torch.ops.dovetail.recurrent_backward.default
Tensors = list[torch.Tensor]

#: How each kind takes its state, and how many states there are.
KINDS = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "rnn_tanh", torch.rnn_relu: "rnn_relu"}


def _run(kind: str, x: torch.Tensor, hidden: Tensors, weights: Tensors, *settings: Any) -> Tensors:
    """`x` is (steps, batch, features); the result and the final states."""
    has_biases, layers, train, bidirectional = settings
    state = hidden if kind == "lstm" else hidden[0]
    return list(getattr(torch, kind)(x, state, weights, has_biases, layers, 0.0, train, bidirectional, False))


def _run_backward(
    gradients: list[torch.Tensor | None], kind: str, x: torch.Tensor, hidden: Tensors, weights: Tensors, *settings: Any
) -> Tensors:
    """The gradients of `x`, the states and the weights."""
    count = len(hidden)
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, *hidden, *weights)]
        found = _run(kind, leaves[0], leaves[1 : count + 1], leaves[count + 1 :], *settings)
        pairs = [(y, g) for y, g in zip(found, gradients, strict=True) if g is not None]
        given = torch.autograd.grad([y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g.contiguous() for leaf, g in zip(leaves, given, strict=True)]


def _shapes(kind: str, x: torch.Tensor, hidden: Tensors, weights: Tensors, *settings: Any) -> Tensors:
    width = hidden[0].shape[2] * (2 if settings[-1] else 1)
    return [x.new_empty((x.shape[0], x.shape[1], width)), *(state.new_empty(state.shape) for state in hidden)]


def _shapes_backward(
    gradients: list[torch.Tensor | None], kind: str, x: torch.Tensor, hidden: Tensors, weights: Tensors, *settings: Any
) -> Tensors:
    return [t.new_empty(t.shape) for t in (x, *hidden, *weights)]


class _Recurrent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, count: int, settings: tuple, *tensors: torch.Tensor) -> Any:
        ctx.given = kind, count, settings
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        with torch._C._AutoDispatchBelowAutograd():
            found = recurrent(kind, tensors[0], tensors[1 : count + 1], tensors[count + 1 :], *settings)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        kind, count, settings = ctx.given
        x, *rest = ctx.saved_tensors
        return None, None, None, *_backward(gradients, kind, x, rest[:count], rest[count:], *settings)


def _differentiable(kind: str, x: torch.Tensor, hidden: Tensors, weights: Tensors, *settings: Any) -> Tensors:
    return list(_Recurrent.apply(kind, len(hidden), settings, x, *hidden, *weights))


LIBRARY.impl("recurrent", _differentiable, "Autograd")
for name, kernel, meta in (
    ("recurrent", _run, _shapes), ("recurrent_backward", _run_backward, _shapes_backward)
):  # fmt: skip
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    LIBRARY.impl(name, meta, "Meta")
