"""How distributed tensors are laid out after an operator, while what they are made of is recorded.

PyTorch finds out by running the operator on fake tensors of its own, of the whole tensor's size. Those are no part of
the program: modes that record must not see them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

_MODULE = "torch.distributed.tensor._sharding_prop"


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Inside, these questions are asked with no mode in force. PyTorch enters a lock of its own before it asks."""
    asks: Any = getattr(sys.modules.get(_MODULE), "ShardingPropagator", None)
    own = getattr(asks, "_fake_mode_lock", None)
    if own is None:
        yield
        return
    asks._fake_mode_lock = _Without(own)
    try:
        yield
    finally:
        asks._fake_mode_lock = own


class _Without(threading.local):
    """The lock, and no modes in the thread that has it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.entered: list[ExitStack] = []

    def __enter__(self) -> None:
        stack = ExitStack()
        stack.enter_context(self.lock)
        stack.enter_context(_disable_current_modes())
        self.entered.append(stack)

    def __exit__(self, *error: Any) -> None:
        self.entered.pop().__exit__(*error)
