"""Marks on tensors: what the user knows about sizes and addresses that will or will not change.

    dovetail.mark_dynamic(t, 0)           dimension 0 will have other sizes
    dovetail.mark_dynamic(t, 0, max=64)   ... of at most 64
    dovetail.maybe_mark_dynamic(t, 0)     it may, but a compilation for this size is all right
    dovetail.mark_static(t)               no dimension will
    dovetail.mark_static_address(t)       the tensor keeps its memory from call to call

A mark belongs to the tensor object and is kept with it. A dimension marked dynamic that the program makes a constant of
is an error; one that may be dynamic then is one, without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from dovetail.errors import InvalidArgument
from dovetail.ir.marks import Mark, put
from dovetail.ir.varying import ATTRIBUTE, Marks, marks_of


def mark_dynamic(t: torch.Tensor, dim: Any, *, min: int | None = None, max: int | None = None) -> None:
    """The size of `dim` (one or several) will differ between calls, between `min` and `max` where given.

    Raises InvalidArgument for a dimension that the tensor does not have or that is marked static, and for bounds that
    leave out the present size.
    """
    marks, dims = marks_of(_tensor(t, "mark_dynamic")), _dims(t, dim, "mark_dynamic")
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and (type(bound) is not int or bound < 0):
            raise InvalidArgument(f"mark_dynamic: {name} must be a size, not {bound!r}")
    for d in dims:
        if d in marks.static:
            raise InvalidArgument(f"mark_dynamic: dimension {d} is marked static")
        if min is not None and t.shape[d] < min or max is not None and t.shape[d] > max:
            raise InvalidArgument(
                f"mark_dynamic: dimension {d} has size {t.shape[d]}, which is not between min={min} and max={max}"
            )
    _put(t, replace(marks, dynamic={**marks.dynamic, **dict.fromkeys(dims, (min, max))}))


def maybe_mark_dynamic(t: torch.Tensor, dim: Any) -> None:
    """The size of `dim` (one or several) may differ between calls; code for its present size is all right too."""
    marks, dims = marks_of(_tensor(t, "maybe_mark_dynamic")), _dims(t, dim, "maybe_mark_dynamic")
    _put(t, replace(marks, perhaps=marks.perhaps | dims))


def mark_static(t: torch.Tensor, dim: Any = None) -> None:
    """The size of `dim` (one, several or, by default, every one) is a constant.

    Raises InvalidArgument for a dimension that the tensor does not have or that is marked dynamic.
    """
    marks = marks_of(_tensor(t, "mark_static"))
    dims = frozenset(range(t.dim())) if dim is None else _dims(t, dim, "mark_static")
    both = sorted(dims & marks.dynamic.keys())
    if both:
        raise InvalidArgument(f"mark_static: dimension {both[0]} is marked dynamic")
    _put(t, replace(marks, static=marks.static | dims))


def mark_static_address(t: torch.Tensor, guard: bool = True) -> None:
    """The tensor keeps its memory from call to call, as parameters do. `guard`: check that it does."""
    if not isinstance(guard, bool):
        raise InvalidArgument(f"mark_static_address: guard must be True or False, not {guard!r}")
    _put(t, replace(marks_of(_tensor(t, "mark_static_address")), address=True))


def _tensor(t: Any, who: str) -> torch.Tensor:
    if not isinstance(t, torch.Tensor):
        raise InvalidArgument(f"{who} takes a tensor, not {type(t).__name__}")
    return t


def _dims(t: torch.Tensor, dim: Any, who: str) -> frozenset[int]:
    """The dimensions, counted from 0."""
    given: Iterable[Any] = dim if isinstance(dim, (list, tuple, set, frozenset)) else [dim]
    for d in given:
        if type(d) is not int:
            raise InvalidArgument(f"{who}: a dimension is an integer, not {d!r}")
        if not -t.dim() <= d < t.dim():
            raise InvalidArgument(f"{who}: the tensor has {t.dim()} dimensions, so there is no dimension {d}")
    return frozenset(d % t.dim() for d in given)


def _put(t: torch.Tensor, marks: Marks) -> None:
    setattr(t, ATTRIBUTE, marks)


put(mark_static_address, Mark.NOTHING)
for _function in (mark_dynamic, maybe_mark_dynamic, mark_static):
    put(_function, Mark.OUTSIDE)
