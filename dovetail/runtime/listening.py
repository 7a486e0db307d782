"""Results of a compiled function that something listens to, though part of their gradient never passes by there.

    features, scores = compiled(x);  features.retain_grad();  scores.sum().backward()

The function is one node of PyTorch's graph: what `scores` hands to `features` stays inside. A hook would see, and could
change, only the gradient from outside: the backward pass raises instead.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.ir.joint import Pair

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


def refuse(watched: Results, later: dict[int, list[int]], gradients: Sequence[Any]) -> None:
    """Raises where a result has a hook or keeps its gradient, and one computed from it has a gradient too."""
    for k, reference in watched:
        result = reference()
        if result is None or not (result._backward_hooks or result.retains_grad):
            continue
        other = next((n for n in later[k] if gradients[n] is not None), None)
        if other is not None:
            raise RuntimeError(
                f"result {k} of a compiled function has a hook or retains its gradient, and result {other} is computed "
                f"from it inside: what comes by way of result {other} would not be seen. Call dovetail.graph_break() "
                f"between the two, put the hook on the tensor inside the function, or leave the function uncompiled."
            )
