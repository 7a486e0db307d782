"""Tensors that are parameters or buffers of modules by a mark, as those of classes that wrap others."""

from __future__ import annotations

import torch

from dovetail.capture.values.base import Session, Value
from dovetail.capture.values.tensor import TensorValue

#: The attribute that the class looks at in `isinstance`.
MARKS: dict[type, str] = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}


def is_marked(s: Session, value: Value, cls: type) -> bool:
    """`isinstance(value, cls)` of a class that has a mark."""
    if issubclass(value.cls, cls) or not isinstance(value, TensorValue):
        return issubclass(value.cls, cls)
    mark = s.try_attr(value, MARKS[cls])
    return mark is not None and bool(mark.native())
