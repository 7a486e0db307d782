"""Library operators whose calls need care."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dovetail.ops.calls import openmp

aten = torch.ops.aten


def _lstm(x: Any, *args: Any) -> Any:
    """Keeps what a backward pass needs: the kernel asks for the grad mode to know whether it must. And oneDNN has no
    layers over nothing."""
    if not x.numel():
        h, c = args[4:6]
        return x.new_empty((*x.shape[:2], h.shape[-1])), h.clone(), c.clone(), x.new_empty(0, dtype=torch.uint8)
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return aten.mkldnn_rnn_layer.default(x, *args)


def _lstm_backward(x: Any, w1: Any, w2: Any, b1: Any, b2: Any, h: Any, c: Any, *args: Any) -> Any:
    given = x, w1, w2, b1, b2, h, c
    return aten.mkldnn_rnn_layer_backward.default(*given, *args) if x.numel() else tuple(map(torch.zeros_like, given))


def _attention(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **named: Any) -> Any:
    """PyTorch chooses this kernel only where there is something to compute; with symbolic sizes that shows late."""
    if query.numel() and key.numel():
        return aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value, dropout, causal, **named)
    found = query.new_zeros((*query.shape[:-1], value.shape[-1]))
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    return found, query.new_full(query.shape[:-1], -math.inf, dtype=wide)


def _attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout: float, causal: bool,
    **named: Any,
) -> Any:
    operator = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    if query.numel() and key.numel():
        return operator(gradient, query, key, value, out, logsumexp, dropout, causal, **named)
    return tuple(map(torch.zeros_like, (query, key, value)))


def _linear(x: Any, weight: Any, bias: Any, *more: Any) -> Any:
    """oneDNN has no products of nothing, and leaves parts of others out where fewer threads come than it has shared
    them out to (3.12, `float32`); the BLAS looks how many there are."""
    if x.numel() and weight.numel() and openmp.gives(torch.get_num_threads()):
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, *more)
    return torch.nn.functional.linear(x, weight, bias)


#: A call through the dispatcher counts how these fill their results; PyTorch's functions do not.
_FILLED = {
    getattr(packet, overload): function
    for function in (torch.rand, torch.randn, torch.randint, torch.randperm)
    for packet in (getattr(aten, function.__name__),)
    for overload in packet.overloads()
    if not any(part in overload for part in ("out", "names"))
}  # fmt: skip


#: What to call in an operator's place.
CALLEES: dict[Any, Callable[..., Any]] = {
    **_FILLED,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
    **({torch.ops.mkldnn._linear_pointwise.default: _linear} if torch.backends.mkldnn.is_available() else {}),
    aten.mkldnn_rnn_layer.default: _lstm,
    aten.mkldnn_rnn_layer_backward.default: _lstm_backward,
}

#: Results whose sizes nobody can tell before the call: only the operator's own derivative reads them.
OPAQUE: dict[Any, frozenset[int]] = {
    aten.mkldnn_rnn_layer.default: frozenset((3,)),
    aten._embedding_bag.default: frozenset((1, 2, 3)),
    aten._embedding_bag_forward_only.default: frozenset((1, 2, 3)),
    # Seed and offset lie on the CPU, and on the GPU while a CUDA graph is recorded.
    aten._scaled_dot_product_efficient_attention.default: frozenset((2, 3)),
    aten._efficient_attention_forward.default: frozenset((2, 3)),
    aten._batch_norm_with_update.default: frozenset((3,)),  # as many bytes as cuDNN wants
    aten._batch_norm_with_update_functional.default: frozenset((3,)),
}

#: Operators whose result begins where their first argument does in its storage; all others begin a storage.
KEEPS_OFFSET = frozenset({aten.as_strided_scatter.default})

#: Their `storage_offset` counts from the start of the storage of their first argument.
FROM_STORAGE = frozenset(("aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"))

#: Operators whose results are new memory, each its own, and which keep none of their arguments.
FRESH = frozenset(
    getattr(space, name).default
    for space, names in (
        (aten, "mm bmm addmm baddbmm mv addmv linear convolution convolution_backward cudnn_convolution_relu "
               "cudnn_convolution_add_relu max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d "
               "avg_pool2d_backward clone"),
        (torch.ops.mkldnn, "_linear_pointwise" if torch.backends.mkldnn.is_available() else ""),
    )
    for name in names.split()
)  # fmt: skip
