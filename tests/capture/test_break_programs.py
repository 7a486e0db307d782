"""Every kind of step that breaks the graph, everywhere: what eager gives, and never the whole frame in plain Python."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import dovetail
from tests.capture.break_programs import BLOCKS, STEPS, Program, arguments
from tests.capture.harness import compare

# The call at which the graph breaks runs the surroundings in plain Python.
GAPS: frozenset[str] = frozenset()
THOROUGH = ("plain", "loop", "except", "finally after an error", "manager", "no_grad", "function")


def chosen() -> list[Program]:
    """Every block with a few steps, every step in a few blocks."""
    blocks = [b for b in BLOCKS if b not in GAPS]
    steps = list(STEPS)
    few = {(b, steps[(k + j) % len(steps)]) for k, b in enumerate(blocks) for j in (0, 5, 11)}
    return [Program(b, s) for b, s in sorted(few | {(b, s) for b in THOROUGH for s in steps})]


def parts(compiled: Any) -> list[Any]:
    """The dispatchers of a compiled function and of what follows its breaks."""
    first = compiled._dovetail_dispatcher
    return [first, *first.compiler.rests.values()]


@pytest.mark.parametrize("program", chosen(), ids=lambda p: p.name)
def test_program(program: Program) -> None:
    function = program.make()
    compiled = dovetail.compile(function, backend="eager")
    for sign in (1, -1, 1):
        ours, theirs = arguments(sign), arguments(sign)
        expected = function(*theirs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            actual = compiled(*ours)
        compare(actual, expected)
        compare(ours[2], theirs[2])
        assert ours[1] == theirs[1]
    assert all(entry.captured.breaks for entry in compiled._dovetail_dispatcher.entries)
    assert not any(part.eager for part in parts(compiled))
