"""The handler table: opcode name → function of the frame and the instruction.

A handler returns None to go on, or `(RETURN, value)` / `(YIELD, value)` to leave the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable[[Any, Any], Any]] = {}
RETURN, YIELD = "return", "yield"


def op(*names: str) -> Callable[[Any], Any]:
    """Register a handler under opcode names."""

    def register(function: Any) -> Any:
        for name in names:
            HANDLERS[name] = function
        return function

    return register
