"""NumPy arrays and tensors over the same memory: what generated code and `wrap_numpy` call."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dovetail.ir.devices import HOST


def to_array(tensor: torch.Tensor) -> Any:
    """The array that `tensor` is seen as; NumPy's arrays know neither device nor gradient."""
    return tensor.numpy(force=True)


def to_scalar(tensor: torch.Tensor) -> Any:
    """A NumPy scalar, where NumPy gives one instead of an array without dimensions."""
    return tensor.numpy(force=True)[()]


def to_tensor(array: Any) -> torch.Tensor:
    """A tensor in host memory with the elements of a NumPy array, which it shares where it can."""
    return torch.as_tensor(array, device=HOST)


def is_array(value: Any) -> bool:
    """An array or a scalar of NumPy's."""
    return isinstance(value, (np.ndarray, np.generic))
