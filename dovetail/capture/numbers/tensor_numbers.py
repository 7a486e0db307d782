"""Numbers that a program takes out of tensors only to combine them with tensors again.

    alpha = max(eps, p.norm(2).item() / n)      norm = p.norm(2).to(float64) / n; alpha = where(norm > eps, norm, eps)
    p.add_(update, alpha=-alpha)                p.add_(update * -alpha)

They stay 0-d float64 tensors of the graph, whose arithmetic rounds as Python's does. What Python would raise for (a
divisor that may be zero) or decide by such a number ends the graph; outside of optimizers, the graph checks divisors.
There, and without `fullgraph` or `capture_scalar_outputs`, `item()` ends it at once: users expect what follows to see
the number.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from dovetail.capture.numbers.graph_numbers import InGraph
from dovetail.capture.state.module_globals import in_optimizer
from dovetail.capture.tables.operator_names import BINARY, FIELD
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import SequenceValue, TupleValue, tensors_in
from dovetail.capture.values.number import Precedence
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ir.records import dataclass
from dovetail.ops.own.check import check

EXACT = 2**53  # the integers up to here are float64s

#: Operations that do the same with a 0-d tensor where they take a number; of lists, with a tensor for each.
TAKE_TENSORS = frozenset(
    "add sub mul div truediv iadd isub imul itruediv addcmul addcdiv gt ge lt le eq ne where masked_fill".split()
)
CHOOSE = frozenset(("where", "masked_fill"))  # by a tensor of truths
LISTS_TAKE_TENSORS = frozenset("add sub mul div".split())
#: Of tensors beside one: half precision would round the number first, integers would become float64.
BESIDE = (torch.float32, torch.float64)


@dataclass
class TensorNumbers:
    """For all attempts at one capture: may there be such numbers outside of optimizers, and has this attempt any?

    What cannot be done with a tensor makes capture start again, with numbers that PyTorch takes out (`GraphNumber`).
    """

    allowed: bool = True
    made: bool = False


class TensorNumber(InGraph):
    """A float that stays in the graph as a 0-d float64 tensor."""

    __slots__ = ("tensor", "positive")
    cls = float
    precedence = Precedence.TENSOR

    def __init__(self, tensor: Any, positive: bool) -> None:
        """`positive`: it is greater than zero, or not a number."""
        super().__init__()
        self.tensor, self.positive = tensor, positive

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        if name not in FIELD or not (_operand(left) and _operand(right)):
            return None
        if name == "truediv" and not (_divides(s, right) or _checked(s, right)):
            return None
        return _number(s, s.torch_call(BINARY[name], [_tensor(s, left), _tensor(s, right)], {}))

    def unary(self, s: Session, name: str) -> Value | None:
        return _number(s, s.torch_call(operator.neg, [self.tensor], {})) if name == "neg" else None

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        """`max` and `min` take a later argument only where it is greater or less, so never one that is no number."""
        if function is float and len(args) == 1:
            return self
        if function not in (max, min) or not all(_operand(a) and a.cls is float for a in args):
            return None
        best = _tensor(s, args[0])
        for other in args[1:]:
            other = _tensor(s, other)
            better = s.torch_call(operator.gt if function is max else operator.lt, [other, best], {})
            best = s.torch_call(torch.where, [better, other, best], {})
        positive = (any if function is max else all)(_is_positive(s, a) for a in args)
        return _number(s, best, positive)


def item(s: Session, tensor: TensorValue) -> Value | None:
    """`tensor.item()` of a float, in an optimizer's code or where no number may end the graph; else None."""
    fake, held, inside = tensor.fake, s.taken.held, in_optimizer(s)
    wanted = inside or s.options.capture_scalar_outputs and held.allowed
    if not wanted or fake.numel() != 1 or fake.dtype not in BESIDE or s.options.numerics == "eager":
        return None
    held.made |= not inside
    found = s.torch_method("detach", [tensor], {})
    found = s.torch_method("to", [found], {"dtype": Const(torch.float64), "copy": Const(True)})
    return _number(s, s.torch_method("reshape", [found, TupleValue([])], {}))


def given(s: Session, name: str, args: Args, kwargs: Kwargs) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of an operation on tensors, with tensors for such numbers where it takes them."""
    of_lists = name.startswith("_foreach_")
    takes, plain = LISTS_TAKE_TENSORS if of_lists else TAKE_TENSORS, name.removeprefix("_foreach_").strip("_")
    beside = [t.fake for t in tensors_in((*args, *kwargs.values()))]
    beside = [f for f in beside if plain not in CHOOSE or f.dtype is not torch.bool]
    if plain not in takes or not beside or any(f.dtype not in BESIDE for f in beside):
        return args, kwargs
    if of_lists:
        return [_each(s, args[0], a) for a in args], kwargs
    dtypes = {f.dtype for f in beside}
    if len(dtypes) > 1 and any(isinstance(v, TensorNumber) for v in kwargs.values()):
        return args, kwargs  # a factor of the narrower one would be rounded to it
    dtype = torch.float32 if dtypes == {torch.float32} else torch.float64
    return [_as_tensor(s, a, dtype) for a in args], {k: _as_tensor(s, v, dtype) for k, v in kwargs.items()}


def _each(s: Session, lists: Value, argument: Value) -> Value:
    """Each number of a list as a tensor of the dtype of the tensor that it is for."""
    both = isinstance(lists, SequenceValue) and isinstance(argument, SequenceValue)
    pairs = list(zip(lists.all(s), argument.all(s))) if both else []  # type: ignore[attr-defined]
    if not pairs or not all(isinstance(n, TensorNumber) for _, n in pairs):
        return argument
    return TupleValue([_as_tensor(s, n, t.fake.dtype) for t, n in pairs])


def _as_tensor(s: Session, value: Value, dtype: torch.dtype) -> Value:
    return s.torch_method("to", [value.tensor, Const(dtype)], {}) if isinstance(value, TensorNumber) else value


def _number(s: Session, tensor: Any, positive: bool = False) -> TensorNumber:
    s.taken.has_tensor_numbers = True
    return TensorNumber(tensor, positive)


def _operand(value: Any) -> bool:
    if isinstance(value, TensorNumber) or isinstance(value, Const) and value.cls is float:
        return True
    return type(value) is Const and value.cls is int and abs(value.value) <= EXACT


def _is_positive(s: Session, value: Any) -> bool:
    """Is it greater than zero, or no number at all? Of one that varies, the entry relies on the answer."""
    return value.positive if isinstance(value, TensorNumber) else s.truth(s.compare(">", value, Const(0)))


def _divides(s: Session, value: Any) -> bool:
    """Is it surely not zero?"""
    return value.positive if isinstance(value, TensorNumber) else s.truth(value)


def _checked(s: Session, right: Any) -> bool:
    """Does the graph raise what Python does for a divisor that is zero?"""
    inside = any(frame.code.region(frame.at) for frame in s.frames)  # of a block, whose handler would have to run
    if inside or in_optimizer(s) or s.graph is not s.root or not isinstance(right, TensorNumber):
        return False
    holds = as_tensor(s.torch_call(operator.ne, [right.tensor, Const(0.0)], {}))
    s.state_node(check, holds.node, [], DIVISION, "ZeroDivisionError")
    return True


def _message() -> str:
    try:
        return str(1.0 / 0)
    except ZeroDivisionError as error:
        return str(error)


DIVISION = _message()  # as this Python says it


def _tensor(s: Session, value: Any) -> Any:
    if isinstance(value, TensorNumber):
        return value.tensor
    value = Const(float(value.value)) if value.cls is int else value
    return s.torch_call(torch.full, [TupleValue([]), value], {"dtype": Const(torch.float64)})
