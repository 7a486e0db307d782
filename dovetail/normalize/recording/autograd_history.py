"""What PyTorch's engine recorded of the fake tensors: the nodes behind a result, which results pass by a tensor, and
which line of the program an operator comes from that the engine runs."""

from __future__ import annotations

from bisect import bisect
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


def _last_first(tensors: Sequence[torch.Tensor]) -> list:
    """The nodes of their history, each before those that it hands gradients to."""
    order: dict[Any, None] = {}
    seen: set[Any] = set()
    stack: list = [(tensor.grad_fn, False) for tensor in tensors]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order[node] = None
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions if before is not None]
    return list(reversed(order))


#: Counts the nodes that PyTorch's engine makes on this thread; each has its number.
_made = torch._C._autograd._get_sequence_nr


class Lines:
    """The lines that the forward half computed, in order, with the count at which each began.

        h = x.gelu()     # begins at 4      ->      %gelu          the first line
        y = h @ w        # begins at 5              %mm            the second
                                                    %mm_1, %mm_2   the second, since the engine runs its node 5
                                                    %gelu_backward the first: node 4

    The same holds where the program calls backward() itself.
    """

    def __init__(self) -> None:
        self._begun: list[int] = []
        self._stacks: list = []

    def begin(self, stack: Any) -> None:
        self._begun.append(_made())
        self._stacks.append(stack)

    def differentiated(self) -> Any:
        """The stack of the operator whose gradient the engine computes now; None if there is none."""
        running = torch._C._current_autograd_node() if self._begun else None
        if running is None or not self._begun[0] <= (number := running._sequence_nr()) < _made():
            return None  # a leaf's has no number
        return self._stacks[bisect(self._begun, number) - 1]
