"""One reason why a graph ends or a function runs eagerly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """`title` completes "The code ..."; `example` is a piece of code that gives this reason."""

    title: str
    explanation: str
    remedy: str
    example: str
