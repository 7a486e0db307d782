"""Tensors that the program has made and tells to require gradients.

    h = x[:, None]
    h.requires_grad = True        # as models do before they checkpoint layers
    return self.layers(h)         # gradients of the layers' parameters; that of h reaches nobody

    fused = nn.Parameter(self.conv.weight * scale)      # one that serves this call alone

PyTorch's engine accumulates a gradient in h. Where nobody can see it, the graph is compiled, and computes none
(`unseen_leaf_`). Whether anybody can is known when the program has been traced: if so, capture starts again, and the
graph ends before h is told, or PyTorch's engine runs the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.capture.values.base import TRUE, Args, Const, Kwargs, RestartCapture, Session
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.calls.autograd_calls import steers
from dovetail.ops.fake.wrapped import is_wrapper


class LeafSeen(RestartCapture):
    """Somebody may see what is accumulated in a leaf of the graph's own."""


def told_before(name: str, args: Args, kwargs: Kwargs) -> bool:
    """Is this call one that changes nothing, since the tensor requires gradients already, or none?

    A view that was made without gradients says that it requires them where its base does, and gets none.
    """
    if name != "requires_grad_" or not isinstance(args[0], TensorValue):
        return False
    fake, wanted = args[0].fake, (*args[1:], *kwargs.values()) or (TRUE,)
    if fake.requires_grad and fake.is_leaf and fake._is_view():
        return False
    return all(isinstance(each, Const) and each.value is fake.requires_grad for each in wanted)


def unseen(s: Session, name: str, args: Args, kwargs: Kwargs) -> bool:
    """Is this call one that makes a leaf, which nobody has been found to see? Ends the graph before others, where it
    may end."""
    value = args[0]
    if name != "requires_grad_" or not isinstance(value, TensorValue) or s.graph is not s.root:
        return False
    given = (*args[1:], *kwargs.values())
    told = [each.value for each in given if isinstance(each, Const)]  # to look at a number is to rely on it
    if False in told:
        return False
    own = value.origin is None and may_be_unseen(s, value)
    if own and told == [True] * len(given) and s.gradients.leaves is not None:
        s.gradients.leaves.append((value.fake, value.fake._version))
        return True
    if s.ends.breaks:
        s.unsupported(
            "new-leaf", "the code tells a tensor to require gradients, and PyTorch would run a graph that makes a leaf",
            "Nothing: what comes before and what comes after are compiled.",
        )  # fmt: skip
    return False


def may_be_unseen(s: Session, data: TensorValue) -> bool:
    """Might a leaf with this memory be one that nobody sees?"""
    if s.options.standalone or s.graph is not s.root:
        return False
    return s.gradients.leaves is not None and not data.fake.is_inference() and not is_wrapper(data.fake)


def rely_on_unseen(s: Session, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """The end of a capture. Raises LeafSeen."""
    if not s.gradients.leaves:
        return
    given = [fake for node in outputs if isinstance(fake := node.meta.get("fake"), torch.Tensor)]
    made = [fake for fake in given if fake.requires_grad]
    leaves = {id(leaf) for leaf, _ in s.gradients.leaves}
    memory = {id(_whole(leaf)) for leaf, _ in s.gradients.leaves}
    shown = any(id(fake) in leaves for fake in given) or any(id(_whole(fake)) in memory for fake in made)
    written = any(leaf.requires_grad and leaf._version != version for leaf, version in s.gradients.leaves)
    differentiated = s.gradients.recorded and any(getattr(each.fake, "requires_grad", False) for each in inputs)
    if shown or written or made and not differentiated or any(map(steers, s.graph.nodes)):
        raise LeafSeen


def _whole(fake: torch.Tensor) -> Any:
    return fake._base if fake._is_view() else fake
