"""What a compiled program raises where it finds that it must not go on."""

from __future__ import annotations


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
