"""What the entry relies on of the program's own definitions: code, defaults, classes' descriptors.

A function that is inlined must keep its code and its defaults; a method, property or other descriptor that a class
lookup found must stay what that lookup finds, and no attribute of the instance may hide it. Plain data in classes is
guarded by its value where it is read. The code of PyTorch and the standard library is taken to be constant; what
their modules and classes have under a name is not (`process/trusted_code.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.capture.process.trusted_code import changeable, trusted
from dovetail.capture.values.base import MISSING, Session
from dovetail.capture.values.callables import FunctionValue
from dovetail.capture.values.objects import ModuleValue, ObjectValue, real_dict
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import ABSENT, GuardKind


def rely_on_function(s: Session, real: Any) -> None:
    """The function is inlined."""
    if trusted(real.__globals__.get("__name__") or ""):
        return
    keywords = None if real.__kwdefaults__ is None else dict(real.__kwdefaults__)
    s.guard(s.bind(real), GuardKind.DEFINITION, (real.__code__, real.__defaults__, keywords))


def rely_on_class(s: Session, classes: Iterable[type], name: str, found: Any) -> None:
    """Looking `name` up in the classes, in order, gave `found`."""
    if found is MISSING or not hasattr(type(found), "__get__"):
        return
    for base in classes:
        if base in s.classes.made:
            continue  # traced code made it
        raw = base.__dict__.get(name, ABSENT)
        if changeable(base):
            s.guard(s.bind(base), GuardKind.CLASS_DICT, (name, raw))
        if raw is not ABSENT:
            return


def rely_on_no_shadow(s: Session, value: Any, name: str) -> None:
    """The class's attribute was taken because the instance has none of that name."""
    if not isinstance(value, ObjectValue) or isinstance(value, (TensorValue, FunctionValue)):
        return
    if value.real is MISSING or value.source is None or name[:2] == "__":
        return
    if isinstance(value, ModuleValue) and name == "forward" and value.identify is None:
        return  # guards look at that of every module that is held
    if not type(value.real).__dictoffset__ or type(getattr(value.real, "__dict__", None)) is not dict:
        return
    if name not in real_dict(value.real):  # else the traced code has removed it
        s.guard(value.source, GuardKind.OWN_LACKS, name)


def computes_class(s: Session, value: Any) -> bool:
    """Does the value's class say itself what `__class__` is?"""
    return s.static(value.cls, "__class__") is not object.__dict__["__class__"]
