"""What Python makes of the results of special methods: it is asked itself, with an object whose method gives them.

    __bool__ that returns 1.2      TypeError: __bool__ should return bool, returned float
    __len__ that returns -1        ValueError: __len__() should return >= 0
    __hash__ that returns 2**70    a hash
"""

from __future__ import annotations

from dovetail.capture.cpython.asked import ASKING, asked
from dovetail.capture.values.base import Const, LazyConst, Session, Value

SMALL = 1 << 31  # numbers below are lengths and hashes as they are


def result(s: Session, value: Value, name: str, found: Value) -> Value:
    """What the built-in function gives for `value`, whose special method gave `found`."""
    _, accepted = ASKING[name]
    known = isinstance(found, Const) and not isinstance(found, LazyConst)
    if found.cls is accepted and (accepted is not int or known and 0 <= found.native() < SMALL):
        return found
    if name == "__len__" and not known and not issubclass(found.cls, int) and s.find_special(found, "__index__"):
        found = s.call_special(found, "__index__")
    if not known and issubclass(found.cls, accepted):
        if name == "__len__" and not s.truth(s.compare(">=", found, Const(0))):
            s.throw(ValueError, "__len__() should return >= 0")
        if name != "__hash__":
            return found
        known = True
    given = found.native() if known else type(found.cls.__name__, (), {})()
    try:
        answer = asked(value.cls.__name__, name, given)
    except (TypeError, ValueError, OverflowError) as error:
        return s.throw_native(error)
    return found if known and answer is given else s.from_native(answer)
