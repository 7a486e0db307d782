"""`install` and `uninstall`: which functions stand under PyTorch's names.

A program's modules may have imported a function (`from torch import compile`). There the name is changed as well, and
changed back. Other names, decorated functions, default arguments and attributes of classes keep what they have.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from dovetail.interop.torch_names import COMPILE, COMPILER, INSTEAD, compile

_LOCK = threading.RLock()
#: Every name, the function of PyTorch's and what takes its place. `torch.compiler.compile` calls `torch.compile`.
PAIRS = (
    ("compile", COMPILE, compile),
    *((name, COMPILER[name], ours) for name, ours in INSTEAD.items() if name in COMPILER),
)


class Installation:
    """What `install` gives. As a context manager it puts PyTorch's functions back, if they were there before."""

    def __init__(self, first: bool) -> None:
        self.first = first

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.first:
            uninstall()


def is_installed() -> bool:
    return vars(torch)["compile"] is compile


def install() -> Installation:
    """Put Dovetail's functions under PyTorch's names."""
    with _LOCK:
        first = not is_installed()
        if first:
            _put({name: (theirs, ours) for name, theirs, ours in PAIRS})
        return Installation(first)


def uninstall() -> None:
    """Put PyTorch's back."""
    with _LOCK:
        if is_installed():
            _put({name: (ours, theirs) for name, theirs, ours in PAIRS})


def _put(changes: dict[str, tuple[Any, Any]]) -> None:
    for names in _namespaces():
        for name in changes.keys() & names.keys():
            before, after = changes[name]
            if names[name] is before:
                names[name] = after


def _namespaces() -> Iterator[dict[str, Any]]:
    """Of `torch`, `torch.compiler` and all modules but PyTorch's others and Dovetail's."""
    for key, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        own = key.partition(".")[0] in ("torch", "dovetail") and key not in ("torch", "torch.compiler")
        if type(names) is dict and not own:
            yield names
