"""The number in a tensor that was just made of one, asked for before anything else has the tensor.

    x.shape[torch.tensor(0)]
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.values.base import Const, Session
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import HOST

MAKERS = (torch.tensor, torch.as_tensor, torch.scalar_tensor)


def number(s: Session, tensor: TensorValue) -> Const | None:
    """What `tensor.item()` gives; None where an operation may have changed it, or its number is not in the text."""
    node, fake = tensor.node, tensor.fake
    if node.op != "call_function" or node.target not in MAKERS or node.users or node.graph is not s.graph:
        return None
    if len(node.args) != 1 or type(node.args[0]) not in (bool, int, float) or fake.device.type == "meta":
        return None
    with _disable_current_modes():
        return Const(torch.tensor(node.args[0], dtype=fake.dtype, device=HOST).item())


def index(s: Session, tensor: TensorValue) -> Const | None:
    """The integer that a tensor of a literal holds, as an index; None if it is none."""
    known = integer(s, tensor)
    return None if known is None else Const(known)


def integer(s: Session, tensor: TensorValue) -> int | None:
    """What `operator.index(tensor)` gives: tensors of an integer or bool have one."""
    known = number(s, tensor)
    return int(known.value) if known is not None and known.cls is not float else None
