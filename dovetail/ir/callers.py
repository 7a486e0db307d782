"""Whose code it is: the line of the program that led here, which is the innermost one outside of this package and of
PyTorch, in the call under way or in a stack that capture has seen; and whose module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch

from dovetail.errors import Location

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
#: How the names of files begin whose code is ours, generated code included; and those of PyTorch's as well.
OURS = (PACKAGE, "<dovetail")
NOT_USERS = (*OURS, os.path.dirname(torch.__file__) + os.sep)


def users_line() -> tuple[str, int, int]:
    """Its file, its number, and how many frames it is above the caller's: the `stacklevel` of a warning is one more."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_USERS):
        level, frame = level + 1, frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, level


_PYTHONS = ("<frozen ", os.path.dirname(os.__file__) + os.sep)


def is_pythons(filename: str) -> bool:
    """Is it a file of PyTorch, of Python itself, or ours?"""
    return filename.startswith(NOT_USERS) or filename.startswith(_PYTHONS) and "site-packages" not in filename


def users_place(stack: Sequence[Location]) -> Location | None:
    """The innermost place, outermost first, that is in none of them; the innermost, if all are."""
    return next((place for place in reversed(stack) if not is_pythons(place.filename)), stack[-1] if stack else None)


#: The packages of PyTorch, of the standard library and of ours: their versions say what they do.
LIBRARY = frozenset(("torch", "dovetail", *sys.stdlib_module_names)) - {"__main__"}


def of_library(module: str | None) -> bool:
    """Does the module belong to PyTorch, to the standard library or to this package?"""
    return (module or "").partition(".")[0] in LIBRARY
