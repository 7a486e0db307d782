"""What a compiled program raises where it finds that it must not go on, and says of itself for a KernelFault."""

from __future__ import annotations

import torch

from dovetail.errors import Location
from dovetail.ir.kernel import Access
from dovetail.ir.records import dataclass

#: The operator of Dovetail's that raises CheckFailed: a launch of a kernel that checks indices.
CHECKING = "checking_template"


class CheckFailed(IndexError):
    """An index that the program checks before using it is out of bounds."""


class OtherSizes(CheckFailed):
    """A size that the program finds out is not what the compiled code relies on.

    `undone`: has nothing been changed by then? False where the place in the program says so.
    """

    def __init__(self, what: str, undone: bool = False) -> None:
        super().__init__(what)
        self.undone = undone


def assumed(condition: bool, undone: bool = False) -> None:
    """In a captured graph: the code around it holds for such sizes only."""
    if not condition:
        raise OtherSizes("other sizes", undone)


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
