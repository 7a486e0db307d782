"""Calls of `torch.jit.script`ed functions: the Python function that one was made from is traced in its place.

Scripted code converts its arguments to the types that it declares, copies lists, and raises errors of its own; where
one of these could show, the graph ends at the call. A `torch.jit.trace`d function holds the branches that its example
took and is always called as it is.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from dovetail.capture.calling.nn_modules import SCRIPT_REMEDY
from dovetail.capture.values.base import NONE, Args, Kwargs, Raised, Session, Value

#: A declared type → the class of arguments that it takes as they are.
AS_THEY_ARE: dict[str, type] = {"Tensor": torch.Tensor, "int": int, "float": float, "bool": bool, "str": str}


def call_scripted(s: Session, function: Any, args: Args, kwargs: Kwargs) -> Value:
    """Call a scripted function as the Python that it was made of."""
    python = _python(function)
    if python is None:
        return _stays(s, function, "it does not run as Python")
    declared = function.schema.arguments
    given = dict(zip((a.name for a in declared), args)) | kwargs
    missing = [a for a in declared if a.name not in given]
    if len(args) + len(kwargs) + len(missing) != len(declared) or any(not a.has_default_value() for a in missing):
        return _stays(s, function, "its arguments do not fit")
    given |= {a.name: s.from_native(a.default_value) for a in missing}
    if not all(_fits(str(a.type), given[a.name]) for a in declared):
        return _stays(s, function, "it converts what it is given")
    try:
        return s.call(s.wrap(python, None), **given)
    except Raised:
        return _stays(s, function, "it raises an error")


def _python(function: Any) -> Any:
    notes = vars(function)
    return notes.get("_torchdynamo_inline") if notes.get("__name__") == "ScriptFunction" else None


def _fits(declared: str, value: Value) -> bool:
    optional = declared.startswith("Optional[")
    if optional and value is NONE:
        return True
    taken = AS_THEY_ARE.get(declared.removeprefix("Optional[").removesuffix("]"))
    return taken is not None and issubclass(value.cls, taken) and (taken is torch.Tensor or value.cls is taken)


def _stays(s: Session, function: Any, why: str) -> NoReturn:
    s.unsupported("script-code", f"{function.name} is a ScriptFunction: {why}", SCRIPT_REMEDY)
