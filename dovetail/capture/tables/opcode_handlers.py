"""The handler table: opcode name → function of the frame and the instruction.

A handler returns None to go on, or `(RETURN, value)` / `(YIELD, value)` to leave the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.capture.values.base import NULL

if TYPE_CHECKING:
    from dovetail.bytecode.decode import Instruction
    from dovetail.capture.interpreter.frame import Frame

Handler = Callable[["Frame", "Instruction"], tuple[str, Any] | None]

HANDLERS: dict[str, Handler] = {}
RETURN, YIELD = "return", "yield"


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler under opcode names."""

    def register(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


def called(stack: list) -> tuple[Any, list]:
    """What lies below a call's arguments: a callable and NULL, in either order, or a callable and an argument."""
    upper, lower = stack.pop(), stack.pop()
    if upper is NULL:
        return lower, []
    return (upper, []) if lower is NULL else (lower, [upper])
