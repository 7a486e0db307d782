"""Functions of a captured graph that are recorded as operators which launch kernels of a template.

Who writes the kernels puts them here: function -> what records a call with its arguments, or gives NotImplemented, and
then the function is recorded as what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.options import Options

TEMPLATES: dict[Any, Callable[..., Any]] = {}


def wanted(options: Options | None) -> bool:
    """May programs compiled so have them? Their accesses are not checked, and they round otherwise than eager does."""
    return options is not None and options.numerics == "default" and not options.check_kernels
