"""Which of a program's processes this is: as its process group has it, or before there is one, its launcher."""

from __future__ import annotations

import os

from torch import distributed


def rank() -> int | None:
    """None in a program of one process."""
    return distributed.get_rank() if _joined() else _number("RANK")


def ranks() -> int | None:
    """How many processes there are."""
    return distributed.get_world_size() if _joined() else _number("WORLD_SIZE")


def marked(text: str) -> str:
    """The text behind the rank, as PyTorch puts it before what a rank raises."""
    found = rank()
    return text if found is None else f"[rank{found}] {text}"


def _joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None
