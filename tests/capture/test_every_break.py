"""A graph may end at any instruction: each place gives what eager gives, resumed eagerly and traced again."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from dovetail.capture.breaks.resume import eager as resume_eagerly
from dovetail.capture.driver import AttemptState, _capture
from dovetail.errors import Unsupported
from dovetail.guards import build, snapshot
from dovetail.ir.captured import Captured, Next
from dovetail.ir.guard import MISS
from dovetail.ir.varying import CONSTANT
from tests.capture.harness import OPTIONS, compare
from tests.capture.test_functions import CASES

STRIDE = 5  # every so many instructions
EVERYWHERE = frozenset(("comprehensions", "object_attributes"))  # empty displays and deletions are single instructions


def enter(captured: Captured, fn: Any, args: tuple[Any, ...]) -> Any:
    """The entry's result; after a break the rest is its continuation itself."""
    captured = replace(captured, names={**captured.names, **captured.continuations})
    entry = build(captured, fn, captured.graph, snapshot())
    result = entry.call(*args)
    assert result is not MISS, [str(f) for f in entry.failures(args, {})]
    return result


def finish(found: Next, again: bool) -> Any:
    rest = resume_eagerly(found.rest)
    if again:
        try:
            return enter(_capture(rest, found.args, {}, OPTIONS, 0, AttemptState(CONSTANT)), rest, found.args)
        except Unsupported:
            pass  # another break would follow; eager goes on
    return rest(*found.args)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", sorted(CASES))
def test_break(name: str, again: bool) -> None:
    function, args = CASES[name], (torch.randn(4, 4), torch.randn(4, 4))
    places = range(1, 400) if name in EVERYWHERE else range(1 + len(name) % STRIDE, 400, STRIDE)
    for stop in places:
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        try:
            captured = _capture(function, ours, {}, OPTIONS, stop, AttemptState(CONSTANT))
        except Unsupported:
            continue  # no break is possible here
        if not captured.continuations:
            break
        compare(finish(enter(captured, function, ours), again), function(*theirs))
        compare(ours, theirs)
