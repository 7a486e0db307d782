"""Operators recorded under another name that computes the same.

    aten._reshape_alias(x, sizes, strides)   ->  aten.view(x, sizes)
    aten._unsafe_view(x, sizes)              ->  aten.view(x, sizes)
    batch_norm_backward(g, x, w, running mean, running variance, ..., train=True)  ->  the same without those two, which
                                                 would otherwise be kept until the backward pass
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

Rewrite = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[Any, tuple[Any, ...], dict[str, Any]]]


def _view(args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> Any:
    return aten.view.default, (args[0], list(val.shape)), {}


def _batch_norm_backward(args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> Any:
    gradient, x, weight, _, _, mean, deviation, train, *rest = args
    if train:
        args = (gradient, x, weight, None, None, mean, deviation, train, *rest)
    return aten.native_batch_norm_backward.default, args, kwargs


REWRITES: dict[Any, Rewrite] = {
    aten._reshape_alias.default: _view,
    aten._unsafe_view.default: _view,
    aten.view.default: _view,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
}
