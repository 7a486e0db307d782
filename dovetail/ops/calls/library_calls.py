"""Library operators whose calls need care: what is called in their place."""

from __future__ import annotations

import math
from typing import Any

import torch

from dovetail.ops.calls import openmp

aten = torch.ops.aten


def lstm(x: Any, *args: Any) -> Any:
    """Keeps what a backward pass needs: the kernel asks for the grad mode to know whether it must. And oneDNN has no
    layers over nothing."""
    if not x.numel():
        h, c = args[4:6]
        return x.new_empty((*x.shape[:2], h.shape[-1])), h.clone(), c.clone(), x.new_empty(0, dtype=torch.uint8)
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return aten.mkldnn_rnn_layer.default(x, *args)


def lstm_backward(x: Any, w1: Any, w2: Any, b1: Any, b2: Any, h: Any, c: Any, *args: Any) -> Any:
    """Of nothing, gradients are zeros."""
    given = x, w1, w2, b1, b2, h, c
    return aten.mkldnn_rnn_layer_backward.default(*given, *args) if x.numel() else tuple(map(torch.zeros_like, given))


def attention(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **named: Any) -> Any:
    """PyTorch chooses this kernel only where there is something to compute; with symbolic sizes that shows late."""
    if query.numel() and key.numel():
        return aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value, dropout, causal, **named)
    found = query.new_zeros((*query.shape[:-1], value.shape[-1]))
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    return found, query.new_full(query.shape[:-1], -math.inf, dtype=wide)


def attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout: float, causal: bool,
    **named: Any,
) -> Any:
    """Of nothing, gradients are zeros."""
    operator = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    if query.numel() and key.numel():
        return operator(gradient, query, key, value, out, logsumexp, dropout, causal, **named)
    return tuple(map(torch.zeros_like, (query, key, value)))


def linear(x: Any, weight: Any, bias: Any, *more: Any) -> Any:
    """oneDNN has no products of nothing, and leaves parts of others out where fewer threads come than it has shared
    them out to (3.12, `float32`); the BLAS looks how many there are."""
    if x.numel() and weight.numel() and openmp.gives(torch.get_num_threads()):
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, *more)
    return torch.nn.functional.linear(x, weight, bias)
