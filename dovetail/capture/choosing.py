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

from dovetail.capture.torchtable import owner
from dovetail.capture.values.base import Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.tensor import ChosenTensor, TensorValue
from dovetail.ops.engine import steers

PLAIN = (torch.Tensor, torch.nn.Parameter)


def choose(s: Any, condition: Value, yes: Value, no: Value) -> Value | None:
    """`yes if condition else no` of alike tensors; None if that cannot be part of the graph."""
    if not isinstance(condition, TensorValue) or condition.fake.numel() != 1 or s.graph is not s.root:
        return None
    if yes is no:
        return yes
    if not (isinstance(yes, TensorValue) and isinstance(no, TensorValue)) or not _alike(yes, no):
        return None
    flag = s.torch_method("reshape", [condition, TupleValue([])], {}) if condition.fake.dim() else condition
    before, s.chosen = s.chosen, []  # nobody asks the copy of a copy for gradients either
    copy = s.torch_call(torch.where, [flag, yes, no], {})
    s.chosen = before
    if copy.fake.stride() != yes.fake.stride():
        return None
    made = s.by_fake[id(copy.fake)] = ChosenTensor(copy, condition, yes, no)
    s.chosen.append(made)
    return made  # type: ignore[no-any-return]


def _alike(left: TensorValue, right: TensorValue) -> bool:
    """Are they the same in all that capture can see?"""
    first, second = left.fake, right.fake
    plain = left.cls is right.cls and left.cls in PLAIN and not left.written and not right.written
    if not plain or any(f.layout is not torch.strided or f.is_inference() or f.is_conj() for f in (first, second)):
        return False
    return all(
        getattr(first, name) == getattr(second, name) for name in ("dtype", "device", "shape", "requires_grad")
    ) and first.stride() == second.stride()  # fmt: skip


def check(s: Any, node: torch.fx.Node, fakes: list[Any], changed: list[Any]) -> None:
    """End the graph before a node that does with a copy what it may not do in the tensor's place."""
    results = [f for f in pytree.tree_leaves(node.meta["fake"]) if isinstance(f, torch.Tensor)]
    for chosen in s.chosen:
        own = chosen.fake
        if any(_may_share(s, f, part.fake) for f in changed for part in (chosen, chosen.yes, chosen.no)):
            refuse(s, "changes a tensor in place")
        if any(f is not own and owner(f) is owner(own) for f in results):
            refuse(s, "takes a view of the tensor")
        if own.requires_grad and any(f is own for f in fakes):
            if steers(node) or node.target is torch.autograd.grad or any(f.requires_grad for f in results):
                refuse(s, "computes gradients with the tensor")


def _may_share(s: Any, left: Any, right: Any) -> bool:
    """May they share memory? Two tensors from outside may."""
    outside = {id(owner(given.fake)) for _, given in s.inputs if isinstance(given.fake, torch.Tensor)}
    return owner(left) is owner(right) or {id(owner(left)), id(owner(right))} <= outside


def refuse_change(s: Any, value: Value) -> None:
    """Neither the tensor nor those that it was chosen from may come to require gradients, or to be leaves."""
    if any(value in (chosen, chosen.yes, chosen.no) for chosen in s.chosen):
        refuse(s, "changes what a tensor is to autograd")


def refuse(s: Any, what: str) -> Any:
    """Never returns."""
    return s.unsupported(
        "chosen-tensor", f"the code {what} that min() or max() gave or was given, and which one it gave is not known",
        "Use torch.minimum or torch.maximum.",
    )
