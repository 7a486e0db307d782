"""What Python makes of the results of special methods: it is asked itself, with an object whose method gives them.

    __bool__ that returns 1.2      TypeError: __bool__ should return bool, returned float
    __len__ that returns -1        ValueError: __len__() should return >= 0
    __hash__ that returns 2**70    a hash
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any

from dovetail.capture.values.base import Const, LazyConst, Value

if TYPE_CHECKING:
    from dovetail.capture.session import Session

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


def result(s: Session, value: Value, name: str, found: Value) -> Value:
    """What the built-in function gives for `value`, whose special method gave `found`."""
    function, accepted = ASKING[name]
    if found.cls is accepted and accepted is not int:
        return found
    known = isinstance(found, Const) and not isinstance(found, LazyConst)
    if name == "__len__" and not known and not issubclass(found.cls, int) and s.find_special(found, "__index__"):
        found = s.call_special(found, "__index__")
    if not known and issubclass(found.cls, accepted):
        if name == "__len__" and not s.truth(s.compare(">=", found, Const(0))):
            s.throw(ValueError, "__len__() should return >= 0")
        if name != "__hash__":
            return found
        known = True
    given = found.native() if known else type(found.cls.__name__, (), {})()
    asked = type(value.cls.__name__, (), {name: lambda *args: given})
    try:
        answer = function(object.__new__(asked))
    except (TypeError, ValueError, OverflowError) as error:
        return s.throw_native(error)
    return found if known and answer is given else s.from_native(answer)
