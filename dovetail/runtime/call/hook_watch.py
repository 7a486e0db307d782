"""Results of a compiled function that something listens to, though part of their gradient never passes by there.

    features, scores = compiled(x);  features.retain_grad();  scores.sum().backward()

The function is one node of PyTorch's graph: what `scores` hands to `features` stays inside. A hook would see, and could
change, only the gradient from outside: the backward pass raises instead.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from dovetail.ir.aten import Passed

#: Results whose gradients pass by a tensor, that tensor, and the number of the next hook then.
Watched = list[tuple[tuple[int, ...], "weakref.ref[torch.Tensor]", int]]


def watcher(passed: Sequence[Passed], some: int) -> Callable[[Any, Any, Any], None]:
    """What tells the backward pass, after each call, about those of the caller's tensors that results pass by; the
    result `some` has a history."""

    def watch(inputs: Sequence[Any], results: Sequence[Any], outputs: Sequence[Any]) -> None:
        watched = getattr(results[some].grad_fn, "watched", None)
        if watched is not None:
            for each in passed:
                tensor = (outputs if each.kind == "output" else inputs)[each.position]
                watched.append((each.later, weakref.ref(tensor), RemovableHandle.next_id))

    return watch


def refuse(watched: Watched, gradients: Sequence[Any]) -> None:
    """Raises where a tensor has a hook or keeps its gradient, and a result that passes by it has a gradient."""
    for later, reference, number in watched:
        tensor = reference()
        if tensor is None or not (tensor.retains_grad or any(k >= number for k in tensor._backward_hooks or ())):
            continue
        if any(gradients[k] is not None for k in later):
            raise RuntimeError(_MESSAGE.format(tuple(tensor.shape)))


_MESSAGE = (
    "a result of a compiled function, of shape {}, has a hook or retains its gradient, and another result that was "
    "differentiated is computed from it inside: what comes by way of that would not be seen. Call "
    "dovetail.graph_break() between the two, put the hook on the tensor inside the function, or leave the function "
    "uncompiled."
)
