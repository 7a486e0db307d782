"""Batch norm by cuDNN, recorded as PyTorch's own.

    cudnn_batch_norm(x, weight, ...)    ->    native_batch_norm(x, weight, ...), and an empty tensor

What cuDNN would keep for the backward pass is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
OF_CUDNN = (aten.cudnn_batch_norm.default, aten.cudnn_batch_norm_backward.default)


def of_cudnn(dispatch: Callable[..., Any], func: Any, args: tuple) -> Any:
    """What the operator of cuDNN's gives. `dispatch` records another one."""
    if func is aten.cudnn_batch_norm.default:
        kept = dispatch(aten.empty.memory_format, ([0],), {"dtype": torch.uint8, "device": args[0].device})
        return *dispatch(aten.native_batch_norm.default, args, {}), kept
    x, gradient, weight, _, _, mean, deviation, epsilon, _ = args
    given = gradient, x, weight, None, None, mean, deviation, True, epsilon, [True, True, True]
    return dispatch(aten.native_batch_norm_backward.default, given, {})
