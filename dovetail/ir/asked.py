"""What capture has asked the process, and takes to be as it is while the process lives.

No guard compares it: what an attribute of a library's module is, whether one class is a subclass of another, which
version of a package is installed, changes in no program but one that means mischief. In another process it may well be
something else, so a compilation that is kept for one (`kept/`) comes with these questions, and is used where they get
the same answers.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dovetail.ir import marks
from dovetail.ir.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """`question(*args)` gave `answer`. The question is a function of ours, of Python's or of PyTorch's."""

    question: Callable[..., Any]
    args: tuple
    answer: Any


# ---------------------------------------------------------------- questions


def call(function: Callable[..., Any], args: tuple, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    """The question that calls a function: the answer is its result."""
    return function(*args, **dict(kwargs))


def in_module(module: str, name: str) -> Any:
    """What the module has under the name."""
    return sys.modules[module].__dict__[name]


def imported(name: str) -> bool:
    """Is the module there? PyTorch's and Python's own, whose import shows nothing, need not be before they are asked
    for."""
    if name.partition(".")[0] in _LIBRARY:
        importlib.import_module(name)
    return name in sys.modules


_LIBRARY = frozenset(("torch", *sys.stdlib_module_names))


def importable(name: str) -> bool:
    """Is there such a module? Those around it are imported for that."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def dispatched(function: Any, cls: type) -> Any:
    """What a single-dispatch function calls for the class."""
    return function.dispatch(cls)


def instead(function: Any) -> Any:
    """What is traced in the place of a function for which the program has named something else."""
    found = (marks.of_function if isinstance(function, FunctionType) else marks.of_native)(function)
    return None if found is None else found.detail


def files_of(function: Any) -> tuple[str, ...]:
    """Of what follows a graph break, those of its frames."""
    rest = getattr(function, "_dovetail_continuation", None)
    codes = [function.__code__] if rest is None else [point.code for point in rest.points]
    return tuple(code.co_filename for code in codes)


def annotated(function: Any) -> tuple:
    """The question for a function's annotations, as pairs of a name and a type."""
    return tuple(function.__annotations__.items())


def signature(function: Any, bound: bool) -> inspect.Signature:
    """`bound`: without its first parameter."""
    found = inspect.signature(function)
    return found.replace(parameters=list(found.parameters.values())[1:]) if bound else found
