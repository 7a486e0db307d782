"""What PyTorch's engine recorded of the fake tensors: the nodes behind a result, and which results pass by a tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def behind(tensors: Sequence[torch.Tensor]) -> set[Any]:
    """The nodes of their history."""
    return set(_last_first(tensors))


def ways(results: Mapping[int, torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[set[int]]:
    """For each of the tensors the results that were computed from it, or are it: their gradients pass by there."""
    bits: dict[tuple[Any, int], int] = defaultdict(int)  # of what a node gives (by its position): a bit for each result
    of_node: dict[Any, int] = defaultdict(int)
    for n, result in enumerate(results.values()):
        bits[result.grad_fn, result.output_nr] |= 1 << n
        of_node[result.grad_fn] |= 1 << n
    for node in _last_first(list(results.values())):
        for before, position in node.next_functions:
            if before is not None:
                bits[before, position] |= of_node[node]
                of_node[before] |= of_node[node]
    found = [bits[tensor.grad_fn, tensor.output_nr] for tensor in tensors]
    return [{k for n, k in enumerate(results) if each >> n & 1} for each in found]


def _last_first(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes of their history, each before those that it hands gradients to."""
    order: dict[Any, None] = {}
    seen: set[Any] = set()
    stack: list[Any] = [(tensor.grad_fn, False) for tensor in tensors]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order[node] = None
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions if before is not None]
    return list(reversed(order))
