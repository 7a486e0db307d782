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
import torch.fx

from dovetail.ir.aten import Returned
from dovetail.ir.joint import JointGraph, Pair

Results = Sequence[tuple[int, weakref.ref[torch.Tensor]]]


def computed_from(pair: Pair, places: Sequence[int]) -> dict[int, list[int]]:
    """For the results at `places` the others among them that are computed from it; those without are left out."""
    results = next(n for n in reversed(pair.forward.graph.nodes) if n.op == "output").args[0]
    nodes = {k: results[k] for k in places}
    found: dict[int, list[int]] = {}
    for later, node in nodes.items():
        before = _before(node)
        for k, other in nodes.items():
            if other is not node and other in before:
                found.setdefault(k, []).append(later)
    return found


def _before(node: Any) -> set[Any]:
    """All that the node is computed from."""
    found: set[Any] = set()
    stack = [node]
    while stack:
        new = [n for n in stack.pop().all_input_nodes if n not in found]
        found.update(new)
        stack += new
    return found


def views_too(call: Callable[..., Any], joint: JointGraph, pair: Pair) -> Callable[..., Any]:
    """`call`, whose outputs that are views of such a result are asked as the result is."""
    returned = joint.aten.returned
    views = {k: _root(returned, each) for k, each in enumerate(returned) if each.given and _has_steps(returned, each)}
    later = computed_from(pair, [position for _, position in joint.tangents]) if views else {}
    watched = [(k, root) for k, root in views.items() if root in later]
    if not watched:
        return call

    def watching(*inputs: Any) -> Any:
        outputs = call(*inputs)
        for k, root in watched:
            base = outputs[k]._base
            made = getattr(base.grad_fn, "watched", None) if base is not None and outputs[k].requires_grad else None
            if made is not None:
                made.append((root, weakref.ref(outputs[k])))
        return outputs

    return watching


def _root(returned: Sequence[Returned], each: Returned) -> Any:
    """The position of the result that an output is made of; None if it is made of something else."""
    while each.origin == "output":
        each = returned[each.value]
    return each.value if each.origin == "result" else None


def _has_steps(returned: Sequence[Returned], each: Returned) -> bool:
    return bool(each.steps) or each.origin == "output" and _has_steps(returned, returned[each.value])


def refuse(watched: Results, later: dict[int, list[int]], gradients: Sequence[Any]) -> None:
    """Raises where a result has a hook or keeps its gradient, and one computed from it has a gradient too."""
    for k, reference in watched:
        result = reference()
        if result is None or not (result._backward_hooks or result.retains_grad):
            continue
        if any(gradients[n] is not None for n in later[k]):
            raise RuntimeError(_MESSAGE.format(tuple(result.shape)))


_MESSAGE = (
    "a result of a compiled function, of shape {}, has a hook or retains its gradient, and another result that was "
    "differentiated is computed from it inside: what comes by way of that would not be seen. Call "
    "dovetail.graph_break() between the two, put the hook on the tensor inside the function, or leave the function "
    "uncompiled."
)
