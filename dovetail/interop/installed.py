"""`install` and `uninstall`: which functions stand under PyTorch's names.

A program's modules may have imported a function (`from torch import compile`). There the name is changed as well, and
changed back. Other names, decorated functions, default arguments and attributes of classes keep what they have.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch

from dovetail.interop.torch_names import COMPILER, INSTEAD, compile
from dovetail.interop.torch_settings import STATE

_LOCK = threading.RLock()
#: The namespaces that are PyTorch's own, and what takes the place of what is in them.
PLACES: tuple[tuple[dict[str, Any], Mapping[str, Any]], ...] = (
    (vars(torch), {"compile": compile}),
    (vars(torch.compiler), {name: ours for name, ours in INSTEAD.items() if name in COMPILER}),
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


def install() -> Installation:
    """Put Dovetail's functions under PyTorch's names."""
    with _LOCK:
        first = not STATE.on
        if first:
            STATE.on = True
            for names, instead in PLACES:
                before = {name: names[name] for name in instead}
                BEFORE.update(before)
                names.update(instead)
                _change_imports(before, instead)
        return Installation(first)


def uninstall() -> None:
    """Put back what was there."""
    with _LOCK:
        if STATE.on:
            STATE.on = False
            for names, instead in PLACES:
                names.update({name: BEFORE[name] for name, ours in instead.items() if names[name] is ours})
                _change_imports(instead, BEFORE)


#: What `install` has found under the names.
BEFORE: dict[str, Any] = {}


def _change_imports(here: Mapping[str, Any], instead: Mapping[str, Any]) -> None:
    """In modules of libraries and of the program."""
    for key, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict or key.partition(".")[0] in ("torch", "dovetail"):
            continue
        for name in here.keys() & names.keys():
            if names[name] is here[name]:
                names[name] = instead[name]
