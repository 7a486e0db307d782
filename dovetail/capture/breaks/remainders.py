"""What the interpreter still does after a call that it makes on its own, as Python code.

Where capture makes such a call natively (`__init__`, an operator's method), a frame of one of these functions stands
between the caller and the called function. So a graph can end inside the called function: what remains is made of
frames with real code only. Before a graph break these frames run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any

from dovetail.bytecode import decode

Call = Callable[[], Any]


def construct(call: Call, made: Any) -> Any:
    call()
    return made


def operate(call: Call, receiver: Any, other: Any, method: Any, message: Any) -> Any:
    """After the first method of two; `method` is the name of the second, which is the receiver's, or None."""
    result = call()
    if result is NotImplemented and method is not None:
        found = getattr(type(receiver), method, None)
        if found is not None:
            result = found(receiver, other)
    if result is NotImplemented:
        raise TypeError(message)
    return result


HIDDEN = frozenset((construct.__code__, operate.__code__))  # frames that users do not see


@cache
def call_index(code: CodeType) -> int:
    """The instruction that makes the call `call()`."""
    instructions = decode(code).instructions
    loaded = next(k for k, i in enumerate(instructions) if i.value == "call" and i.name.startswith("LOAD"))
    return next(k for k in range(loaded, len(instructions)) if instructions[k].name == "CALL")
