"""Helpers of `torch.optim` that ask whether PyTorch's compiler is at work."""

from __future__ import annotations

from typing import Any

import torch
import torch.optim.optimizer as optimizer

from dovetail.capture.known.table import known
from dovetail.capture.values.base import Const, Value
from dovetail.capture.values.containers import SequenceValue
from dovetail.capture.values.tensor import TensorValue


@known(optimizer._get_value)
def _get_value(s: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A step count or rate as eager computes with it: Python's floats have 64 bits."""
    (value,) = args
    if not isinstance(value, TensorValue):
        return value
    return s.torch_method("to", [value, Const(torch.float64)], {}) if value.fake.is_floating_point() else value


def _with_factors(function: Any) -> Any:
    """`scalars` may be numbers that tensors of the graph hold; PyTorch takes those as one tensor."""

    def call(s: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) > 3 and isinstance(args[3], SequenceValue) and isinstance(args[3].all(s)[0], TensorValue):
            args = [*args[:3], s.torch_call(torch.stack, [args[3]], {})]
        return s.torch_call(function, args, kwargs)

    return call


for _name in ("addcdiv", "addcmul"):
    for _function in (getattr(torch, f"_foreach_{_name}"), getattr(torch, f"_foreach_{_name}_")):
        known(_function)(_with_factors(_function))
