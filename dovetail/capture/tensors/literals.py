"""The numbers in tensors that a graph makes of constants alone: nothing that varies is in them, so capture knows them.

    x.shape[torch.tensor(0)]
    x.view(2, torch.div(x.shape[0], 2, rounding_mode="trunc"))
    if (torch.ones(2, 12) > 0).any():

When Python asks for one, what made the tensor runs once, on the host (`literal_steps`).
"""

from __future__ import annotations

from dovetail.capture.tensors.literal_steps import elements
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import ListValue, SequenceValue
from dovetail.capture.values.tensor import TensorValue

#: Where all arguments are sizes and places; and where those after the tensor that is asked are.
MAKING = frozenset("zeros ones empty randn rand full".split())
ASKING = frozenset(
    "view reshape expand repeat tile narrow unflatten as_strided broadcast_to new_zeros new_ones new_empty".split()
)


def number(s: Session, tensor: TensorValue) -> Const | None:
    """What `tensor.item()` gives; None where it may be another one in another call, or an operation may change it."""
    known = elements(s, tensor) if tensor.fake.numel() == 1 else None
    return None if known is None else Const(known[0])


def listed(s: Session, tensor: TensorValue) -> Value | None:
    """What `tensor.tolist()` gives, of a vector."""
    known = elements(s, tensor) if tensor.fake.dim() == 1 else None
    return None if known is None else ListValue([Const(element) for element in known])


def index(s: Session, tensor: TensorValue) -> Const | None:
    """The integer that a tensor of constants holds, as an index; None if it is none."""
    known = integer(s, tensor)
    return None if known is None else Const(known)


def integer(s: Session, tensor: TensorValue) -> int | None:
    """What `operator.index(tensor)` gives: tensors of an integer or bool have one."""
    if tensor.fake.is_floating_point():
        return None
    known = number(s, tensor)
    return int(known.value) if known is not None and known.cls is not float else None


def sizes(s: Session, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of an operation, with integers for tensors of constants that stand for sizes or places."""
    asked = name in ASKING
    if name == "arange":  # which takes any number
        return [_number(s, a) for a in args], {k: _number(s, a) for k, a in kwargs.items()}
    if not asked and name not in MAKING:
        return args, kwargs
    return [*args[:asked], *(_size(s, a) for a in args[asked:])], {k: _size(s, a) for k, a in kwargs.items()}


def _number(s: Session, value: Value) -> Value:
    return number(s, value) or value if isinstance(value, TensorValue) else value


def _size(s: Session, value: Value) -> Value:
    if isinstance(value, TensorValue):
        return index(s, value) or value
    if isinstance(value, SequenceValue) and any(isinstance(item, TensorValue) for item in value.items):
        return ListValue([_size(s, item) for item in value.items])
    return value
