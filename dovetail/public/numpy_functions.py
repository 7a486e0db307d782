"""NumPy functions that take and give tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.ir.arrays import is_array, to_array, to_tensor


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that sees them as NumPy arrays, and gives tensors for arrays.

    fn: takes and gives arrays, also inside lists, tuples and dictionaries. Compiled as one graph it runs on the
        tensors' device and gradients flow through it; NumPy itself, outside of a graph, knows neither.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(_seen, (args, kwargs))
        return pytree.tree_map(_given, fn(*args, **kwargs))

    return wrapped


def _seen(value: Any) -> Any:
    return to_array(value) if isinstance(value, torch.Tensor) else value


def _given(value: Any) -> Any:
    return to_tensor(value) if is_array(value) else value
