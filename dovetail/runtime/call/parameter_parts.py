"""The tensors that parameters are made of (`DTensor`), which are no parameters themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import torch

from dovetail.ops.fake.wrapped import inner, is_wrapper

#: By identity.
_PARTS: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()


def note_parts(values: Iterable[Any]) -> None:
    """Of the parameters among the values."""
    for value in values:
        if is_wrapper(value) and isinstance(value, torch.nn.Parameter):
            _PARTS.update({id(part): part for part in inner(value)})


def is_of_a_parameter(value: Any) -> bool:
    """Is it one, or noted as part of one?"""
    return isinstance(value, torch.nn.Parameter) or id(value) in _PARTS
