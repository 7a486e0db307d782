"""The line of the program that led here: the innermost one outside of this package and of PyTorch."""

from __future__ import annotations

import os
import sys

import torch

_OURS = (*(os.path.dirname(path) + os.sep for path in (os.path.dirname(__file__), torch.__file__)), "<dovetail")


def users_line() -> tuple[str, int, int]:
    """Its file, its number, and how many frames it is above the caller's: the `stacklevel` of a warning is one more."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, level
