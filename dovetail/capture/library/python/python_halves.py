"""Library modules whose fast half is native: their own Python half is traced in its place."""

from __future__ import annotations

import _bisect
import _heapq
import builtins
import importlib.util
from types import BuiltinFunctionType, ModuleType
from typing import Any

from dovetail.capture.tables.known_callables import standin


def _without(name: str, accelerator: str) -> ModuleType:
    """A second copy of a library module, made as on a Python that lacks the native half."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    def lookup(wanted: str, *rest: Any) -> Any:
        if wanted == accelerator:
            raise ImportError(wanted)
        return __import__(wanted, *rest)

    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": lookup}
    spec.loader.exec_module(module)
    return module


NATIVE = {"heapq": _heapq, "bisect": _bisect}

for _name, _native in NATIVE.items():
    _pure = _without(_name, _native.__name__)
    for _key, _function in vars(_native).items():
        if isinstance(_function, BuiltinFunctionType) and hasattr(_pure, _key):
            standin(_function)(getattr(_pure, _key))
