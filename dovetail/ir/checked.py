"""What a checked program says of itself, for the message of a KernelFault."""

from __future__ import annotations

import torch

from dovetail.errors import Location
from dovetail.ir.kernel import Access
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Watched:
    """One group's part of a launch. `stack` are the user's lines that it computes, as far as they are known."""

    kernel: str
    group: str
    accesses: tuple[Access, ...]
    stack: tuple[Location, ...]


@dataclass(frozen=True)
class Promise:
    """What a tensor must be, besides sizes and strides, and where: `role` completes "... is given to"."""

    role: str
    buffer: str
    dtype: torch.dtype
    device: torch.device
    stack: tuple[Location, ...]
