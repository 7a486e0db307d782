"""Operators that raise where the program does, for what is known at run time only.

`dovetail::check` stands in a graph for `if not condition: raise ValueError(text)`, or another kind of error. The text
may show tensors: it is a format string with a field for each tensor in `shown`. `dovetail::classes` is what `one_hot`
asks of its argument: PyTorch's own decomposition leaves that out.

Both look at values. While a program is recorded there are none yet: whoever records it takes what is to be done later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.ops.own.library import library

ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        ValueError, AssertionError, RuntimeError, TypeError, ArithmeticError, FloatingPointError, OverflowError,
        ZeroDivisionError, LookupError, IndexError, KeyError, NotImplementedError, Exception,
    )
}


#: Takes a function and its arguments.
Later = Callable[[Callable[..., None], tuple[Any, ...]], None]


class _Recorded(threading.local):
    later: Later | None = None


_recorded = _Recorded()


@contextmanager
def put_off(later: Later) -> Iterator[None]:
    """Checks of this thread are handed to `later`, whose they are then to do."""
    _recorded.later = later
    try:
        yield
    finally:
        _recorded.later = None


def _now_or_later(function: Callable[..., None]) -> Callable[..., None]:
    def run(*args: Any) -> None:
        if _recorded.later is None:
            function(*args)
        else:
            _recorded.later(function, args)

    return run


def _check(
    condition: torch.Tensor, shown: list[torch.Tensor], text: str, error: str = "ValueError", undone: bool = False
) -> None:
    """`undone`: nothing that shows has been done by then, so the program can be run again."""
    if not condition:
        failed = ERRORS[error](*([text.format(*shown)] if text else []))
        failed.undone = undone  # type: ignore[attr-defined]
        raise failed


def _classes(index: torch.Tensor, count: int) -> None:
    if index.numel() and int(index.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    if index.numel() and int(index.max()) >= count:
        raise RuntimeError("Class values must be smaller than num_classes.")


def _check_nothing(*given: object) -> None:
    """Tensors without values pass."""


LIBRARY = library(__name__)
LIBRARY.define('check(Tensor condition, Tensor[] shown, str text, str error="ValueError", bool undone=False) -> ()')
LIBRARY.define("classes(Tensor index, SymInt count) -> ()")
for name, function in (("check", _check), ("classes", _classes)):
    LIBRARY.impl(name, _now_or_later(function), "CompositeExplicitAutograd")
    LIBRARY.impl(name, _check_nothing, "Meta")
check: Any = torch.ops.dovetail.check.default
classes: Any = torch.ops.dovetail.classes.default
