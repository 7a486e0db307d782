"""`.grad`, `.grad_fn`, `.is_leaf` and calls of the autograd engine inside the traced program.

Without `backward` in the graph, `.grad` is an attribute like any other: it comes from the tensor outside, and what is
assigned is assigned after the graph. `backward` changes it while the graph runs, so from then on the graph reads it.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.capture.values.base import MISSING, NONE, Const, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, Computed


class GradFn(Value):
    """The node of the autograd graph that a tensor came from: there is one, nothing else is known."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def get_attr(self, s: Any, name: str) -> Value:
        return s.unsupported(
            "grad-fn", f"the code reads {name!r} of a tensor's grad_fn", "Look at the autograd graph outside."
        )


def grad_fn(s: Any, value: TensorValue) -> Value:
    if not value.fake.requires_grad:
        return NONE
    made = value.fake.grad_fn if value.origin is None else value.origin.grad_fn
    _rely_on_leaf(s, value)
    return NONE if made is None else GradFn(type(made))


def is_leaf(s: Any, value: TensorValue) -> Value:
    if value.origin is None or not value.fake.requires_grad:
        return Const(value.fake.is_leaf)
    _rely_on_leaf(s, value)
    return Const(value.origin.is_leaf)


def _rely_on_leaf(s: Any, value: TensorValue) -> None:
    if value.origin is not None and value.source is not None:
        s.guard(Attr(value.source, "is_leaf"), GuardKind.EQUAL, value.origin.is_leaf)


def rely_on_leaves(s: Any, given: list[Any]) -> None:
    """PyTorch refuses to write to a leaf. The fakes of tensors from outside are leaves, but some real ones are not."""
    for value in _from_outside(s, given):
        _rely_on_leaf(s, value)
        if not value.origin.is_leaf:
            _history(s, "has")


def rely_on_own_memory(s: Any, changed: list[Any]) -> None:
    """What was changed gets a history; PyTorch refuses that, or passes it on, where the real tensor is a view."""
    for value in _from_outside(s, [t for t in changed if t.requires_grad]):
        if value.source is not None:
            s.guard(Computed("{}._is_view()", (value.source,)), GuardKind.ID, value.origin._is_view())
        if value.origin._is_view():
            _history(s, "is a view and gets")


def _from_outside(s: Any, fakes: list[Any]) -> list[Any]:
    """The inputs among these tensors and the bases of these views."""
    wanted = {id(t._base if t._is_view() else t) for t in fakes if isinstance(t, torch.Tensor)}
    found = [s.by_fake.get(id(i.fake)) for _, i in s.inputs if id(i.fake) in wanted]
    return [value for value in found if value is not None and value.origin is not None]


def _history(s: Any, how: str) -> None:
    s.unsupported(
        "in-place-history", f"a tensor from outside that {how} a history of gradients is changed in place",
        "Compute a new tensor instead.",
    )


def grad(s: Any, value: TensorValue) -> Value:
    found = value.attrs.get("grad")
    if found is not None and found is not MISSING:
        return found
    if value.origin is not None and value.origin.is_leaf:
        found = s.wrap(value.origin.grad, Attr(value.source, "grad"))
        if found is not NONE or not s.backward_ran:
            return found
        return _computed(s, value)
    if not value.fake.requires_grad:
        return NONE
    if value.fake.is_leaf and value.origin is None:
        return _computed(s, value) if s.backward_ran else NONE
    return s.unsupported("tensor-grad", "reading .grad of a tensor that is not a leaf", "Read it outside.")


def _computed(s: Any, value: TensorValue) -> Value:
    """What `backward` left, read by the graph."""
    fake = value.fake.grad
    if fake is None:
        return NONE
    node = s.graph.call_function(getattr, (value.node, "grad"))
    node.meta.update(stack=s.stack(), mutates=True)
    return s.tensor_result(node, fake)


def backward(s: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`loss.backward()`: a node that changes `.grad` of leaves."""
    pending = [v for v in s.effects.touched.values() if isinstance(v, TensorValue) and "grad" in v.written]
    if pending:
        return s.unsupported(
            "backward-after-grad", "backward() after .grad was assigned in the same graph",
            "Nothing to do: the graph ends here and goes on with the assignments made.",
        )
    s.backward_ran = True
    return s.recorded_method("backward", args, kwargs)
