"""Whose code a module is: the program's, or that of libraries whose versions say what it does."""

from __future__ import annotations

import sys

#: The packages of PyTorch, of the standard library and of ours.
LIBRARY = frozenset(("torch", "dovetail", *sys.stdlib_module_names)) - {"__main__"}


def of_library(module: str | None) -> bool:
    """Does the module belong to PyTorch, to the standard library or to this package?"""
    return (module or "").partition(".")[0] in LIBRARY
