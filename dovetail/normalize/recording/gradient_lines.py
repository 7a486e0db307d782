"""Which line of the program an operator comes from that PyTorch's engine runs: that whose gradient it computes.

    h = x.gelu()     # begins at 4      ->      %gelu          the first line
    y = h @ w        # begins at 5              %mm            the second
                                                %mm_1, %mm_2   the second, since the engine runs its node 5
                                                %gelu_backward the first: node 4

The same holds where the program calls backward() itself.
"""

from __future__ import annotations

from bisect import bisect
from typing import Any

import torch

#: Counts the nodes that PyTorch's engine makes on this thread; each has its number.
_made = torch._C._autograd._get_sequence_nr


class Lines:
    """The lines that the forward half computed, in order, with the count at which each began."""

    def __init__(self) -> None:
        self._begun: list[int] = []
        self._stacks: list[Any] = []

    def begin(self, stack: Any) -> None:
        self._begun.append(_made())
        self._stacks.append(stack)

    def differentiated(self) -> Any:
        """The stack of the operator whose gradient the engine computes now; None if there is none."""
        running = torch._C._current_autograd_node() if self._begun else None
        if running is None or not self._begun[0] <= (number := running._sequence_nr()) < _made():
            return None  # a leaf's has no number
        return self._stacks[bisect(self._begun, number) - 1]
