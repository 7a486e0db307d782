"""Marks on tensors: kept with them, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail
from dovetail.public.dynamic_marks import marks_of


def test_marks_are_kept_with_the_tensor() -> None:
    t = torch.ones(4, 5, 6)
    dovetail.mark_dynamic(t, 0, min=2, max=8)
    dovetail.mark_dynamic(t, [-1])
    dovetail.maybe_mark_dynamic(t, 1)
    dovetail.mark_static_address(t)
    marks = marks_of(t)
    assert marks.dynamic == {0: (2, 8), 2: (None, None)} and marks.perhaps == {1} and marks.address
    other = torch.ones(2, 3)
    dovetail.mark_static(other)
    assert marks_of(other).static == {0, 1} and not marks_of(other).address


def test_marked_tensors_compile() -> None:
    compiled = dovetail.compile(lambda x: x * 2, fullgraph=True)
    for size in (3, 4, 5):
        t = torch.ones(size, 2)
        dovetail.mark_dynamic(t, 0)
        dovetail.mark_static(t, 1)
        assert torch.equal(compiled(t), t * 2)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no tensor": (lambda t: dovetail.mark_dynamic([1], 0), "takes a tensor, not list"),
    "no such dimension": (lambda t: dovetail.mark_dynamic(t, 2), "no dimension 2"),
    "no integer": (lambda t: dovetail.mark_static(t, "rows"), "an integer, not 'rows'"),
    "bound": (lambda t: dovetail.mark_dynamic(t, 0, min="2"), "must be a size"),
    "bounds without the size": (lambda t: dovetail.mark_dynamic(t, 0, min=9), "not between min=9"),
    "both": (lambda t: (dovetail.mark_dynamic(t, 0), dovetail.mark_static(t)), "marked dynamic"),
    "both, the other way": (lambda t: (dovetail.mark_static(t, 0), dovetail.mark_dynamic(t, 0)), "marked static"),
    "no flag": (lambda t: dovetail.mark_static_address(t, guard=1), "True or False"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_marks_say_what_is_wrong(case: str) -> None:
    use, message = WRONG[case]
    with pytest.raises(dovetail.InvalidArgument, match=message):
        use(torch.ones(4, 5))
