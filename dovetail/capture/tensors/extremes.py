"""`min` and `max` of tensors with one element: which one they give is known only when the graph runs.

    m = min(a, b); return m, m * 2      ->      c = b < a; w = where(c, b, a); return (b if c else a), w * 2

The graph computes with a copy. The tensor that leaves it is the object itself, so that identity, memory and gradients
are eager's. The copy would pass a gradient to both tensors, memory that is shared would show changes, and an object is
another: where the code does any of that, the graph ends.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.numbers import optimizer_counters
from dovetail.capture.tables.graph_functions import owner
from dovetail.capture.tables.operator_names import FIELD, out_of_place
from dovetail.capture.values.base import Const, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.tensor import ChosenNumber, ChosenTensor, TensorValue, refuse_choice
from dovetail.ir.devices import HOST
from dovetail.ops.calls.autograd_calls import steers

PLAIN = (torch.Tensor, torch.nn.Parameter)


def choose(s: Session, condition: Value, yes: Value, no: Value) -> Value | None:
    """`yes if condition else no` of alike tensors; None if that cannot be part of the graph."""
    if not isinstance(condition, TensorValue) or condition.fake.numel() != 1 or s.graph is not s.root:
        return None
    if yes is no:
        return yes
    if optimizer_counters.outcome(s, condition) is not None:  # what an optimizer counts tells the way
        return None
    if _is_number(yes) or _is_number(no):
        return _mixed(s, condition, yes, no)
    if not (isinstance(yes, TensorValue) and isinstance(no, TensorValue)) or not _alike(yes, no):
        return None
    copy = _copy(s, condition, yes, no)
    return None if copy.fake.stride() != yes.fake.stride() else _chosen(s, copy, condition, yes, no)


def _copy(s: Session, condition: TensorValue, yes: Value, no: Value) -> Any:
    flag = s.torch_method("reshape", [condition, TupleValue([])], {}) if condition.fake.dim() else condition
    before, s.tensors.chosen = s.tensors.chosen, []  # nobody asks the copy of a copy for gradients either
    copy = s.torch_call(torch.where, [flag, yes, no], {})
    s.tensors.chosen = before
    return copy


def _chosen(s: Session, copy: TensorValue, condition: TensorValue, yes: Value, no: Value) -> ChosenTensor:
    made = s.objects.by_fake[id(copy.fake)] = ChosenTensor(copy, condition, yes, no)
    s.tensors.chosen.append(made)
    return made


def _is_number(value: Value) -> bool:
    return type(value) is Const and value.cls in (int, float)


def _mixed(s: Session, condition: TensorValue, yes: Value, no: Value) -> ChosenNumber | None:
    """Of a tensor and a number, where the tensor could hold the number."""
    tensor, number = (no, yes) if _is_number(yes) else (yes, no)
    if type(tensor) is not TensorValue or tensor.cls not in PLAIN or tensor.fake.dim() or not _is_number(number):
        return None
    copy = _copy(s, condition, yes, no)
    return ChosenNumber(s, _chosen(s, copy, condition, yes, no)) if copy.fake.dtype is tensor.fake.dtype else None


def beside(s: Session, name: str, left: Value, right: Value) -> tuple[Value, Value]:
    """The operands of `left op right`, with copies for values beside which a tensor computes the same in any case."""
    return _beside(s, name, left, right), _beside(s, name, right, left)


def _beside(s: Session, name: str, value: Value, other: Value) -> Value:
    if type(value) is not ChosenNumber or not isinstance(other, TensorValue) or out_of_place(name) not in FIELD:
        return value
    chosen = value.chosen
    number = next(part.value for part in (chosen.yes, chosen.no) if isinstance(part, Const))
    with _disable_current_modes():
        like = torch.ones((1,) * other.fake.dim(), dtype=other.fake.dtype, device=HOST)
        held = torch.tensor(number, dtype=chosen.fake.dtype, device=HOST)
        wanted = torch.result_type(like, number)
        exact = bool(held.to(wanted) == torch.tensor(number, dtype=wanted, device=HOST))
        same = exact and wanted in WIDE and torch.result_type(like, held) is wanted
    return chosen if same else value


WIDE = frozenset((torch.float32, torch.float64, torch.int64))  # in others a number is not rounded as a tensor is


def _alike(left: TensorValue, right: TensorValue) -> bool:
    """Are they the same in all that capture can see?"""
    first, second = left.fake, right.fake
    plain = left.cls is right.cls and left.cls in PLAIN and not left.written and not right.written
    if not plain or any(f.layout is not torch.strided or f.is_inference() or f.is_conj() for f in (first, second)):
        return False
    return all(
        getattr(first, name) == getattr(second, name) for name in ("dtype", "device", "shape", "requires_grad")
    ) and first.stride() == second.stride()  # fmt: skip


def check(s: Session, node: torch.fx.Node, fakes: list, changed: list) -> None:
    """End the graph before a node that does with a copy what it may not do in the tensor's place."""
    results = [f for f in pytree.tree_leaves(node.meta["fake"]) if isinstance(f, torch.Tensor)]
    for chosen in s.tensors.chosen:
        own = chosen.fake
        parts = [v.fake for v in (chosen, chosen.yes, chosen.no) if isinstance(v, TensorValue)]
        if any(_may_share(s, f, part) for f in changed for part in parts):
            refuse_choice(s, "changes a tensor in place")
        if any(f is not own and owner(f) is owner(own) for f in results):
            refuse_choice(s, "takes a view of the tensor")
        if own.requires_grad and any(f is own for f in fakes):
            if steers(node) or node.target is torch.autograd.grad or any(f.requires_grad for f in results):
                refuse_choice(s, "computes gradients with the tensor")


def _may_share(s: Session, left: Any, right: Any) -> bool:
    """May they share memory? Two tensors from outside may."""
    outside = {id(owner(given.fake)) for _, given in s.taken.inputs if isinstance(given.fake, torch.Tensor)}
    return owner(left) is owner(right) or {id(owner(left)), id(owner(right))} <= outside
