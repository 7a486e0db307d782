"""Numbers among a program's inputs: every stage's program means what eager computes, for other values too."""

from __future__ import annotations

import pytest
import torch

from dovetail.capture.driver import capture
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Group, LibraryCall, Param, Program
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import problems, verify
from dovetail.ir.text import program_text
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.options import Options
from dovetail.schedule import schedule

X = torch.linspace(0.5, 3, 12).reshape(3, 4)
WHOLE = torch.arange(12).reshape(3, 4)


def lowered(fn, *args) -> Program:
    with torch.no_grad():
        captured = capture(fn, args, {}, Options(dynamic=True))
        graph = normalize(captured.graph, [given.fake for given in captured.inputs], Options())
        return lower(graph, Options())


LOOPS = {
    "arithmetic": (lambda x, s: (x * s + 1) / s - s, X, 2.5, 0.3),
    "alpha": (lambda x, s: torch.add(x, x, alpha=s), X, 2.5, -1.0),
    "bounds": (lambda x, s: x.clamp(max=s), X, 2.5, 1.0),
    "power": (lambda x, s: x**s, X, 2.5, 2.0),
    "base": (lambda x, s: s**x, X, 2.5, 2.0),
    "choice": (lambda x, s: torch.where(x > s, x, s), X, 2.5, 1.0),
    "whole": (lambda x, s: x * s - s, WHOLE, 3, -7),
    "whole and float": (lambda x, s: x * s, WHOLE, 2.5, -7.0),
    "float and whole": (lambda x, s: x * s, X, 3, -7),
    "bfloat16": (lambda x, s: x * s + s, X.bfloat16(), 2.5, 0.1),
    "filled": (lambda x, s: x + torch.full((4,), s), X, 2.5, -0.0),
}


@pytest.mark.parametrize("case", LOOPS)
def test_in_loops(case: str) -> None:
    fn, x, first, later = LOOPS[case]
    program = lowered(fn, x, first)
    assert program.numbers and all(isinstance(item, Group) for item in program.items)
    for stage in (program, schedule(program, Options())):
        verify(stage)
        assert parse_program(program_text(stage)) == stage
        for value in (first, later):
            given = [value if isinstance(p, Param) else x for p in stage.parameters()]
            (found,) = evaluate(stage, given)
            torch.testing.assert_close(found, fn(x, value))


CALLS = {
    "short integers": (lambda x, s: x.clamp(max=s), WHOLE.to(torch.int8), 3),
    "float into integers": (lambda x, s: torch.full_like(x, s), WHOLE, 2.5),
    "a divisor that may be zero": (lambda x, s: x // s, WHOLE, 3),
    "elu": (lambda x, s: torch.nn.functional.elu(x - 2, s), X, 2.5),
}


@pytest.mark.parametrize("case", CALLS)
def test_left_to_the_library(case: str) -> None:
    """Where eager looks at the number, or no loop is written for it yet."""
    fn, x, value = CALLS[case]
    program = lowered(fn, x, value)
    verify(program)
    assert any(isinstance(item, LibraryCall) for item in program.items)
    assert parse_program(program_text(program)) == program
    (found,) = evaluate(program, [value if isinstance(p, Param) else x for p in program.parameters()])
    torch.testing.assert_close(found, fn(x, value))


def test_an_undeclared_number_is_illegal() -> None:
    text = program_text(lowered(lambda x, s: x * s, X, 2.5))
    assert [p for _, p in problems(parse_program(text))] == []
    other = parse_program(text)
    wrong = Program(other.inputs, other.items, other.outputs)
    assert any("which is no number of the program" in p for _, p in problems(wrong))
