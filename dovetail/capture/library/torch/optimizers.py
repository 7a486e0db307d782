"""Helpers of `torch.optim` that ask whether PyTorch's compiler is at work, and operators on lists of tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.optim.optimizer as optimizer

from dovetail.capture.numbers.tensor_numbers import BESIDE
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import ListValue, SequenceValue
from dovetail.capture.values.tensor import TensorValue, as_tensor


@known(optimizer._get_value)
def _get_value(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A step count or rate as eager computes with it: Python's floats have 64 bits."""
    (value,) = args
    if not isinstance(value, TensorValue):
        return value
    return s.torch_method("to", [value, Const(torch.float64)], {}) if value.fake.is_floating_point() else value


def _with_factors(function: Any) -> Any:
    """`scalars` may be numbers that tensors of the graph hold; PyTorch takes those as one tensor."""

    def call(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if len(args) > 3 and isinstance(args[3], SequenceValue) and isinstance(args[3].all(s)[0], TensorValue):
            args = [*args[:3], s.torch_call(torch.stack, [args[3]], {})]
        return s.torch_call(function, args, kwargs)

    return call


def _with_tensor(function: Any) -> Any:
    """PyTorch takes the number out of a tensor without dimensions; here each tensor of the list takes the tensor."""

    def call(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 2 and isinstance(args[0], SequenceValue) and isinstance(args[1], TensorValue) and not kwargs:
            first, number = args[0].all(s), args[1].fake
            plain = not number.dim() and not number.requires_grad
            if plain and all(as_tensor(t).fake.dtype in BESIDE for t in (*first, args[1])):
                args = [args[0], ListValue([s.torch_method("clone", args[1:], {})] * len(first))]  # as it is now
        return s.torch_call(function, args, kwargs)

    return call


for _name in ("add", "sub"):  # the others take tensors
    for _function in (getattr(torch, f"_foreach_{_name}"), getattr(torch, f"_foreach_{_name}_")):
        known(_function)(_with_tensor(_function))

for _name in ("addcdiv", "addcmul"):
    for _function in (getattr(torch, f"_foreach_{_name}"), getattr(torch, f"_foreach_{_name}_")):
        known(_function)(_with_factors(_function))
