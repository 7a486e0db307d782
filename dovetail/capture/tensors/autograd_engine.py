"""`.grad`, `.grad_fn`, `.is_leaf` and calls of the autograd engine inside the traced program.

Without `backward` in the graph, `.grad` is an attribute like any other: it comes from the tensor outside, and what is
assigned is assigned after the graph. `backward` changes it while the graph runs, so from then on the graph reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.capture.tensors.gradient_hooks import refuse_unknown
from dovetail.capture.values.base import FALSE, MISSING, NONE, TRUE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.tensor import TensorValue, refuse_change
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import HOOKLESS, IS_VIEW, Attr, Computed, Source
from dovetail.ops.calls.autograd_calls import leaves_of, steers
from dovetail.ops.fake.wrapped import is_wrapper, made_of


class GradFn(Value):
    """The node of the autograd graph that a tensor came from: there is one, nothing else is known."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def get_attr(self, s: Session, name: str) -> Value:
        return s.unsupported("grad-fn", f"the code reads {name!r} of a tensor's grad_fn")


def grad_fn(s: Session, value: TensorValue) -> Value:
    """`tensor.grad_fn`: None, or something that the program may only compare with None."""
    if not value.fake.requires_grad:
        return NONE
    made = value.fake.grad_fn if value.origin is None else value.origin.grad_fn
    _rely_on_leaf(s, value)
    return NONE if made is None else GradFn(type(made))


def is_leaf(s: Session, value: TensorValue) -> Value:
    """`tensor.is_leaf`."""
    if value.origin is None or not value.fake.requires_grad:
        return Const(value.fake.is_leaf)
    _rely_on_leaf(s, value)
    return Const(value.origin.is_leaf)


def _rely_on_leaf(s: Session, value: TensorValue) -> None:
    if value.origin is not None and value.source is not None:
        s.guard(Attr(value.source, "is_leaf"), GuardKind.EQUAL, value.origin.is_leaf)


def rely_on_leaves(s: Session, given: list) -> None:
    """PyTorch refuses to write to a leaf, and the fakes of some tensors that are none are leaves."""
    for value in _from_outside(s, pytree.tree_leaves(given)):
        if value.origin._is_view():  # asking it more would bring its history up to date
            _history(s, "has")
        _rely_on_leaf(s, value)
        if not value.origin.is_leaf:
            _history(s, "has")


def rely_on_own_memory(s: Session, changed: list) -> None:
    """What was changed gets a history; PyTorch refuses that, or passes it on, where the real tensor is a view."""
    s.gradients.written = s.gradients.written or bool(_from_outside(s, changed)) or _is_written(s)
    for value in _from_outside(s, [t for t in changed if t.requires_grad]):
        s.gradients.turned = True
        _rely_on_no_view_outside(s, value, "gets")
        if value.source is not None and value.origin.requires_grad and torch.is_grad_enabled():
            _rely_on_leaf(s, value)


def note_views(s: Session, node: Any, result: Any, read: list) -> None:
    """See to it that the histories of views that the node reads are brought up to date, as computing with them does.

    `read` are fakes. Of a view from outside it is remembered who computes with its history (what gives the view itself,
    as `x.to(x.dtype)` does, computes nothing); where the time counts the node stays, though nobody needs its result.
    """
    _rely_on_first_histories(s, result, read)
    if any(_renewed_by_now(s, fake) for fake in read):
        node.meta["renews"] = True
    elif s.graph is s.root and torch.is_grad_enabled():
        made = {id(each) for each in pytree.tree_leaves(result) if getattr(each, "requires_grad", False)}
        for value in map(s.objects.by_fake.get, map(id, read)):
            if isinstance(value, TensorValue) and value.origin is not None and value.fake.requires_grad:
                if value.source is not None and value.origin._is_view() and made - {id(value.fake)}:
                    s.gradients.readers.append((node, value.source))


def _renewed_by_now(s: Session, fake: torch.Tensor) -> bool:
    """May what the program has done before give this view another history than what it does later?"""
    if fake._is_view() and fake.requires_grad:
        return bool(fake._version) or s.gradients.written
    return s.gradients.turned and any(value.origin._is_view() for value in _from_outside(s, [fake]))


def renewed(s: Session, text: Callable[[Source], str]) -> list[str]:
    """Statements that do the same for views whose readers were left out of the graph, since nobody needs the result.

    PyTorch refuses to write to a view that it has not brought up to date, or to bring it up to date.
    """
    left = dict.fromkeys(source for node, source in s.gradients.readers if node._erased)
    return [f"{text(source)}.grad_fn" for source in left]


def rely_on_no_view(s: Session, value: TensorValue) -> None:
    """PyTorch refuses to cut a view from what it is a view of; the fake of a view from outside is none."""
    refuse_change(s, value)
    if value.origin is not None and value.origin._is_view() and value.fake.requires_grad:
        _history(s, "has")


def _rely_on_first_histories(s: Session, result: Any, read: list) -> None:
    """A graph computes with the histories that its inputs have when it begins; a view gets another by being read after
    a write under another name, `x.detach().add_(1)`, and hooks on it are hooks on that one."""
    given = _from_outside(s, [fake for fake in read if fake.requires_grad])
    written = [value for value in given if value.fake._version and value.origin.requires_grad]
    if not written or not torch.is_grad_enabled():
        return
    if any(getattr(each, "requires_grad", False) for each in pytree.tree_leaves(result)):
        for value in written:
            _rely_on_no_view_outside(s, value, "has")


def _rely_on_no_view_outside(s: Session, value: TensorValue, how: str) -> None:
    viewed = value.origin is not None and value.origin._is_view()
    if value.source is not None:
        s.guard(Computed(IS_VIEW, (value.source,)), GuardKind.ID, viewed)
    if viewed:
        _history(s, how)


def _from_outside(s: Session, fakes: list) -> list:
    """The inputs among these tensors and the bases of these views."""
    wanted = dict.fromkeys(id(t._base if t._is_view() else t) for t in fakes if isinstance(t, torch.Tensor))
    found = [s.objects.by_fake.get(fake) for fake in wanted]
    return [value for value in found if isinstance(value, TensorValue) and value.origin is not None]


def _is_written(s: Session) -> bool:
    """Has anything from outside changed, be it under another name, as `x.detach().add_(1)` changes x?"""
    fakes = made_of([given.fake for _, given in s.taken.inputs if isinstance(given.fake, torch.Tensor)])
    return any(not fake.is_inference() and fake._version for fake in fakes)


def _history(s: Session, how: str) -> None:
    s.unsupported("in-place-history", f"a view from outside that {how} a history of gradients is changed in place")


def grad(s: Session, value: TensorValue) -> Value:
    """`tensor.grad`."""
    found = value.attrs.get("grad")
    if found is not None and found is not MISSING:
        return found
    if value.origin is not None and value.origin.is_leaf:
        known = id(value.origin.grad) in s.objects.by_identity
        found = s.wrap_late(value.origin.grad, Attr(value.source, "grad"))  # type: ignore[arg-type]
        if not known and isinstance(found, TensorValue):
            s.gradients.met(found)
        if found is not NONE or not s.tensors.backward_ran:
            return found
        return _computed(s, value)
    if not value.fake.requires_grad:
        return NONE
    if value.fake.is_leaf and value.origin is None:
        return _computed(s, value) if s.tensors.backward_ran else NONE
    return s.unsupported("tensor-grad", "reading .grad of a tensor that is not a leaf")


def _computed(s: Session, value: TensorValue) -> Value:
    """What `backward` left, read by the graph."""
    fake = value.fake.grad
    if fake is None:
        return NONE if not s.gradients.from_outside else s.unsupported(
            "tensor-grad", "reading .grad after a backward pass through what was computed before this graph"
        )
    return s.tensor_result(s.state_node(getattr, value.node, "grad"), fake)


def backward(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`loss.backward()`: gradients that the graph computes and that are assigned or added to `.grad`.

    Where the engine has more to do than that, it is a node that changes `.grad` while the graph runs.
    """
    refuse_unknown(s)
    leaves = _own_leaves(s, args, kwargs)
    if leaves is not None:
        return _assign(s, args, kwargs, leaves)
    pending = [v for v in s.effects.touched.values() if isinstance(v, TensorValue) and "grad" in v.written]
    if pending:
        return s.unsupported("backward-after-grad", "backward() after .grad was assigned in the same graph")
    if any(_from_before(s, leaf) for leaf in _leaves(args[0])):
        if s.ends.breaks:
            s.unsupported("backward-from-outside", "backward() goes back to what was computed before this graph")
        s.gradients.from_outside = True
    s.tensors.backward_ran = True
    return s.recorded_method("backward", args, kwargs)


def _leaves(loss: Value) -> list[torch.Tensor]:
    return leaves_of(loss.fake) if isinstance(loss, TensorValue) else []


def _from_before(s: Session, leaf: torch.Tensor) -> bool:
    """Does the real tensor's history go on, to tensors that nobody here knows?"""
    value = s.objects.by_fake.get(id(leaf))
    return value is None or value.origin is not None and not value.origin.is_leaf


#: What `backward` may be told for its gradients to be plain values: (parameter, its place).
_PLAIN = {"gradient": 1, "retain_graph": 2}


def _own_leaves(s: Session, args: Args, kwargs: Kwargs) -> list[TensorValue] | None:
    """The leaves under a loss, if they are inputs without hooks, and nothing else is asked of the engine."""
    told = [*args[3:], *(v for k, v in kwargs.items() if k not in _PLAIN)]
    loss = args[0]
    if not isinstance(loss, TensorValue) or any(v is not NONE and v is not FALSE for v in told):
        return None
    if s.graph is not s.root or s.tensors.backward_ran or any(steers(n) for n in s.graph.nodes):
        return None
    if any(is_wrapper(given.fake) for _, given in s.taken.inputs):
        return None  # gradients may be of other classes than their leaves
    leaves = []
    for fake in leaves_of(loss.fake):
        leaf = s.objects.by_fake.get(id(fake))
        if leaf is None or not _is_plain_leaf(leaf):
            return None
        leaves.append(leaf)
    for leaf in leaves:
        s.guard(Computed(HOOKLESS, (leaf.source,)), GuardKind.ID, True)  # type: ignore[arg-type]
        _rely_on_leaf(s, leaf)
    return leaves


def _is_plain_leaf(value: TensorValue) -> bool:
    real = value.origin
    if real is None or value.source is None:
        return False
    return real.is_leaf and not real._backward_hooks and not real._post_accumulate_grad_hooks


def _assign(s: Session, args: Args, kwargs: Kwargs, leaves: list[TensorValue]) -> Value:
    """`.grad` of each leaf becomes its gradient, or has it added in place."""
    given = {name: kwargs.get(name, args[place] if place < len(args) else NONE) for name, place in _PLAIN.items()}
    computed = s.torch_call(
        torch.autograd.grad, [TupleValue([args[0]]), TupleValue(leaves)],
        {"grad_outputs": TupleValue([given["gradient"]]), "retain_graph": given["retain_graph"], "allow_unused": TRUE},
    )  # fmt: skip
    used: set[int] = set()
    assert isinstance(computed, TupleValue)
    for leaf, found in zip(leaves, computed.all(s), strict=True):
        if not isinstance(found, TensorValue):
            continue
        before = grad(s, leaf)
        if isinstance(before, TensorValue):
            s.torch_method("add_", [before, found], {})
        else:
            own = id(found.fake) not in used and found.origin is None
            s.set_attr(leaf, "grad", _laid_out(s, leaf.fake, found, own))
        used.add(id(found.fake))
    return NONE


def _laid_out(s: Session, leaf: torch.Tensor, found: TensorValue, own: bool) -> Value:
    """The gradient with the leaf's strides, as the engine leaves it: what is nobody else's is taken as it is.

    The engine leaves no view, which could not be detached in place.
    """
    strides = leaf.stride() if torch.empty_like(leaf).stride() == leaf.stride() else None  # dense
    same = found.fake.stride() == strides if strides is not None else found.fake.is_contiguous()
    if own and same:
        return s.torch_method("detach", [found], {}) if found.fake._is_view() else found
    if strides is None:
        return s.torch_method("clone", [found], {"memory_format": Const(torch.contiguous_format)})
    made = s.torch_call(
        torch.empty_strided, [Const(tuple(leaf.shape)), Const(tuple(strides))],
        {"dtype": Const(found.fake.dtype), "device": Const(found.fake.device)},
    )  # fmt: skip
    return s.torch_method("copy_", [made, found], {})
