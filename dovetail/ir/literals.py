"""Text of the user's values: as Python that gives them again, and for people.

Neither fails for an integer of more digits than Python writes in decimal (`sys.set_int_max_str_digits`), and what is
for people runs none of the user's code, as `repr` of an object would.
"""

from __future__ import annotations

import enum
import math
import re
import types
from itertools import islice
from typing import Any

import torch


def literal(value: Any) -> str:
    """`value` as Python: a number, a text, None, or tuples of them."""
    if type(value) is tuple:
        inside = ", ".join(map(literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if type(value) is int:
        return integer(value)
    return repr(value)


def has_literal(value: Any) -> bool:
    """Is `literal(value)` Python that gives it again? Not of infinity, nor of what other classes than these made."""
    return type(value) in LITERALS and (type(value) is not float or math.isfinite(value))


LITERALS = (int, str, float, bool, bytes, types.NoneType)
MOST_BITS = 2048  # an integer of as many is written in decimal wherever limits are set


def has_text(value: Any) -> bool:
    """Can texts that others make, such as a graph's, hold the number? It is about integers alone."""
    return not isinstance(value, int) or value.bit_length() <= MOST_BITS


def integer(value: int) -> str:
    """In decimal, or in hexadecimal where there would be too many digits: that has no limit."""
    try:
        return int.__repr__(value)
    except ValueError:
        return hex(value)


def in_words(value: Any, limit: int = 80) -> str:
    """`value` for a message, in at most `limit` characters."""
    text = _words(value, 3)
    return text if len(text) <= limit else text[: limit - 3] + "..."


ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def steady(text: str) -> str:
    """The text without objects' addresses, which differ from process to process."""
    return ADDRESS.sub("", text)


def error_in_words(error: BaseException) -> str:
    """Its type and message. Errors of the program's may hold what has no text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as failure:  # of the program's own `__str__`
        return f"{name}: {in_words(error.args)} (its text: {type(failure).__name__})"


#: Types whose `repr` is the interpreter's or PyTorch's own and shows no other objects.
PLAIN = {
    bool, float, complex, types.NoneType, types.EllipsisType, types.NotImplementedType, types.FunctionType,
    types.BuiltinFunctionType, types.CodeType, types.ModuleType, torch.Size, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.SymInt, torch.SymFloat, torch.SymBool,
}  # fmt: skip
BRACKETS: dict[type[Any], str] = {
    tuple: "({})", list: "[{}]", set: "{{{}}}", frozenset: "frozenset({{{}}})", range: "range({})",
}  # fmt: skip
MOST = 80  # characters of a text and items of a container that are looked at


def _words(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int:
        return integer(value)
    if kind in (str, bytes):
        return repr(value[:MOST])
    if kind in PLAIN or kind.__module__.startswith("dovetail."):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{value._name_}"
    if isinstance(value, type):
        return type.__repr__(value)
    if not depth or kind not in BRACKETS and kind is not dict:
        return object.__repr__(value)
    if kind is dict:
        pairs = islice(value.items(), MOST)
        return f"{{{', '.join(f'{_words(k, depth - 1)}: {_words(v, depth - 1)}' for k, v in pairs)}}}"
    items = (value.start, value.stop, value.step) if kind is range else islice(value, MOST)
    inside = ", ".join(_words(v, depth - 1) for v in items)
    return BRACKETS[kind].format(f"{inside}," if kind is tuple and len(value) == 1 else inside)
