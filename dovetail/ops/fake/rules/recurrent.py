"""Recurrent layers over symbolic sizes. PyTorch would write out every time step, of which it wants the number.

before:  lstm(x, (h, c), weights, ...)
after:   y, hy, cy, _ = mkldnn_rnn_layer(x, w0, w1, b0, b1, h[0], c[0], ...), once for each layer and direction, where
         PyTorch does so for plain sizes; else
         y, hy, cy = dovetail::recurrent("lstm", x, [h, c], weights, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.devices import HOST
from dovetail.ops.fake.rules.layout import in_rows
from dovetail.ops.fake.symbolic.number import needed
from dovetail.ops.fake.symbolic.size_questions import expected
from dovetail.ops.fake.symbolic.symint import dim_of
from dovetail.ops.own.recurrent import KINDS
from dovetail.ops.own.recurrent import recurrent as as_a_whole

aten = torch.ops.aten
_LSTM = 2  # oneDNN's number for this kind of cell
_DTYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
Tensors = Sequence[torch.Tensor]


def recurrent(function: Any, args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, which is one of KINDS; NumberNeeded where it is to be tried as it is."""
    if kwargs or len(args) != 9 or not isinstance(args[2], (tuple, list)) or torch.is_autocast_enabled(HOST.type):
        raise needed()  # packed sequences have other arguments
    x, hidden, weights, has_biases, layers, dropout, train, bidirectional, batch_first = args
    states = tuple(hidden) if function is torch.lstm else (hidden,)
    if any(not isinstance(t, torch.Tensor) or t.dim() != 3 for t in (x, *states)):
        raise needed()
    settings = has_biases, layers, train, bidirectional
    x = x.transpose(0, 1) if batch_first else x
    if not expected(x.shape[0] >= 1):
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    if function is torch.lstm and _by_onednn(x, states, weights):
        y, *ends = _by_layers(x, states, weights, dropout, batch_first, *settings)
    elif isinstance(dim_of(x.shape[0]), int) or dropout and train and layers > 1:  # what is drawn must be drawn once
        raise needed()
    else:
        y, *ends = as_a_whole(KINDS[function], x, list(states), list(weights), *settings)
    return y.transpose(0, 1) if batch_first else y, *ends


def _by_onednn(x: torch.Tensor, states: Tensors, weights: Tensors) -> bool:
    """Does PyTorch leave the layer to oneDNN? Not where states are projected."""
    kinds = {(t.device.type, t.dtype) for t in (x, *states, *weights)}
    plain = len(kinds) == 1 and kinds <= {(HOST.type, dtype) for dtype in _DTYPES}
    h, c = states
    projected = h.shape[2] is not c.shape[2] and dim_of(h.shape[2]) is not dim_of(c.shape[2])
    return plain and not projected and torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()


def _by_layers(
    x: torch.Tensor, states: Tensors, weights: Tensors, dropout: float, batch_first: bool, has_biases: bool,
    layers: int, train: bool, bidirectional: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    x, first, second = map(_in_rows, (x, *states))
    h, c = first.unbind(0), second.unbind(0)
    ends: list = []
    for layer in range(layers):
        found = []
        for backwards in (False, True) if bidirectional else (False,):
            k = len(ends)
            y, *end, _ = aten.mkldnn_rnn_layer(
                x, *_weights(weights, k, has_biases), h[k], c[k], backwards, [], _LSTM, h[k].shape[1], layers,
                has_biases, bidirectional, batch_first, train,
            )  # fmt: skip
            found.append(y)
            ends.append(end)
        x = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    return x, *(torch.stack([end[which] for end in ends]) for which in range(2))


def _in_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor made contiguous, without a look at whether a size is 1."""
    return tensor if in_rows(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def _weights(weights: Tensors, k: int, has_biases: bool) -> list[torch.Tensor]:
    """Two matrices of the k-th layer and direction and two vectors, in whose place the operator takes zeros."""
    if has_biases:
        return list(weights[4 * k : 4 * k + 4])
    matrices = list(weights[2 * k : 2 * k + 2])
    return [*matrices, *map(torch.zeros_like, matrices)]
