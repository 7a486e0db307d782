"""How special methods are found, who asks for their results, and what comes of these: natively, without a session."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

#: Special method → who asks for it and what is taken as it is.
ASKING: dict[str, tuple[Callable[..., Any], type]] = {
    "__bool__": (bool, bool),
    "__len__": (len, int),
    "__hash__": (hash, int),
    "__str__": (str, str),
    "__repr__": (repr, str),
    "__format__": (format, str),
    "__int__": (int, int),
    "__float__": (float, float),
    "__complex__": (complex, complex),
    "__bytes__": (bytes, bytes),
    "__init__": (lambda made: type(made)(), NoneType),
}


def looked_up(value: Any, name: str, absent: Any) -> Any:
    """`type(value).name` bound to the value, as the interpreter looks up special methods; `absent` if there is none."""
    for base in type(value).__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            binder = getattr(type(found), "__get__", None)
            return found if binder is None else binder(found, value, type(value))
    return absent


def asked(cls: str, name: str, given: Any) -> Any:
    """The built-in function's result, or error, for an instance of a class of that name whose method gives that."""
    function, _ = ASKING[name]
    return function(object.__new__(type(cls, (), {name: lambda *args: given})))
