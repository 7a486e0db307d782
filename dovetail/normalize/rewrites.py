"""Operators recorded under another name that computes the same.

    aten._reshape_alias(x, sizes, strides)   ->  aten.view(x, sizes)
    aten._unsafe_view(x, sizes)              ->  aten.view(x, sizes)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

Rewrite = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[Any, tuple[Any, ...], dict[str, Any]]]


def _view(args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> Any:
    return aten.view.default, (args[0], list(val.shape)), {}


REWRITES: dict[Any, Rewrite] = {
    aten._reshape_alias.default: _view,
    aten._unsafe_view.default: _view,
    aten.view.default: _view,
}
