"""What a call was given that ran without being compiled, so that what the next one has otherwise is known to vary.

Numbers and sizes are named as capture names them: `n`, `x.shape[0]`, `batch['ids'].shape[1]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dovetail.ir.literals import literal

#: Containers inside of each other that are looked into.
DEEPEST = 4


def numbers_and_sizes(fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]) -> dict[str, int | float]:
    """Those among the arguments. What has its own way of being called may know its arguments by another name."""
    found = dict(_inside("args", args, DEEPEST)) | dict(_inside("kwargs", dict(kwargs), DEEPEST))
    try:
        called = fn.forward if isinstance(fn, torch.nn.Module) else fn
        bound = inspect.signature(called).bind(*args, **kwargs)
    except (TypeError, ValueError):  # no signature, or another one: the call says so itself
        return found
    for name, value in bound.arguments.items():
        found |= dict(_inside(name, value, DEEPEST))
    return found


def _inside(path: str, value: Any, deep: int) -> Iterator[tuple[str, int | float]]:
    if isinstance(value, torch.Tensor):
        yield from ((f"{path}.shape[{k}]", size) for k, size in enumerate(value.shape))
    elif type(value) in (int, float):
        yield path, value
    elif deep and type(value) in (list, tuple):
        for k, inner in enumerate(value):
            yield from _inside(f"{path}[{k}]", inner, deep - 1)
    elif deep and type(value) is dict:
        for key in (key for key in value if type(key) in (str, int)):
            yield from _inside(f"{path}[{literal(key)}]", value[key], deep - 1)


def changed(before: Mapping[str, int | float], now: Mapping[str, int | float]) -> frozenset[str]:
    """The names of what is otherwise now."""
    return frozenset(name for name, value in now.items() if name in before and before[name] != value)
