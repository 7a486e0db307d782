"""NumPy arrays: a tensor of the graph seen through PyTorch's own NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.capture.values.objects import OpaqueValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Source


class ArrayValue(OpaqueValue):
    """An array whose elements are those of `tensor`.

    `view` is the `torch._numpy.ndarray` over the tensor's fake, which its functions take and give. `scalar`: NumPy
    would have a scalar here, which is a value of its own, not a place in memory.
    """

    __slots__ = ("tensor", "view", "scalar")

    def __init__(
        self, tensor: TensorValue, view: Any, scalar: bool = False, real: Any = MISSING, source: Source | None = None
    ) -> None:
        super().__init__(np.ndarray, real, source)
        self.tensor, self.view, self.scalar = tensor, view, scalar

    @property
    def type(self) -> Any:
        return np.dtype(self.view.dtype.name).type if self.scalar else np.ndarray

    def get_attr(self, s: Session, name: str) -> Any:
        return s.array_get_attr(self, name)


def as_array(value: Value) -> ArrayValue:
    """The value, which is known to be an array."""
    assert isinstance(value, ArrayValue), value
    return value


class NumberValue(ArrayValue):
    """A NumPy number from outside that was seen to change; who needs its value after all relies on it."""

    __slots__ = ("s",)
    s: Session

    def native(self) -> Any:
        self.s.guard(self.source, GuardKind.EQUAL, self.real)
        return self.real
