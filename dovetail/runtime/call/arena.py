"""Blocks of memory for temporaries, one for each thread, kept between calls.

A block grows to the largest program that its thread has run, so a warm call allocates nothing
but its results. A program entered while its thread's block is in use (an operator that calls
compiled code) gets a block of its own for that call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dovetail.ir.devices import HOST

ALIGNMENT = 64
LARGEST_KEPT = 256 << 20  # bytes
MOST_SIZES = 16  # combinations of sizes for which a block keeps a program's tensors


class Arena:
    """`base`: uint8 tensor; `address`: its first byte, a multiple of 64."""

    __slots__ = ("base", "address", "size", "views")

    def __init__(self, size: int) -> None:
        whole = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device=HOST)
        start = -whole.data_ptr() % ALIGNMENT
        self.base = whole[start : start + size]
        self.address = self.base.data_ptr()
        self.size = size
        self.views: WeakKeyDictionary[Callable[..., Any], dict[Any, tuple[torch.Tensor, ...]]] = WeakKeyDictionary()

    def views_of(self, make: Callable[..., tuple[torch.Tensor, ...]], given: Any = None) -> tuple[torch.Tensor, ...]:
        """The tensors over this block that a program's library calls use; `given`: at these sizes."""
        known = self.views.get(make)
        if known is None:
            known = self.views[make] = {}
        found = known.get(given)
        if found is None:
            if len(known) >= MOST_SIZES:
                known.clear()
            found = known[given] = make(self.base, self) if given is None else make(self.base, self, given)
        return found


class _Blocks(threading.local):
    free: Arena | None = None


_blocks = _Blocks()


_NONE = Arena(0)  # for programs without temporaries


def take(size: int) -> Arena:
    """A block of at least `size` bytes that nobody else uses until `give`."""
    if not size:
        return _NONE
    block, _blocks.free = _blocks.free, None
    if block is None or block.size < size:
        return Arena(size)
    return block


def give(block: Arena) -> None:
    """Return a block taken by this thread; the largest is kept, unless it was for a rare large call."""
    if block is _NONE or block.size > LARGEST_KEPT:
        return
    kept = _blocks.free
    if kept is None or kept.size < block.size:
        _blocks.free = block


def release() -> None:
    """Free this thread's block."""
    _blocks.free = None
