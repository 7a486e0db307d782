"""A hundred random Python programs, the same ones on every machine. More: `make fuzz-python`."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from tests.fuzz.python.__main__ import COMMAND
from tests.fuzz.python.generate import generate
from tests.fuzz.python.observe import Walk
from tests.fuzz.python.reduce import reduced


@pytest.mark.parametrize("start", range(0, 90, 15))
def test_random_programs(start):
    warnings.simplefilter("ignore", SyntaxWarning)  # `1 is None`
    found = {seed: COMMAND.run(seed, "eager").difference for seed in range(start, start + 8)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_the_same_seed_gives_the_same_program():
    assert generate(3) == generate(3)


def test_a_program_is_reduced_to_what_fails():
    text = "a = 1\nif a:\n    b = [len('x') + 2, 5]\n    c = 3\nprint(b)\n"
    assert reduced(text, lambda t: "len(" in t) == "b = len('x')"


def test_a_view_that_refuses_to_be_looked_at_is_an_outcome():
    base = torch.ones(4)
    with torch.no_grad():
        view = base.view(2, 2)
    base.mul_(torch.ones(4, requires_grad=True))
    walk = Walk()
    walk.root("views", [view, base])
    assert [what[0] for place, what in walk.lines if "views[0]" in place] == ["refuses"]


def test_an_error_of_the_checker_does_not_end_a_sweep():
    assert replace(COMMAND, check=lambda text, backend: 1 / 0).run(0).kind == "checker"
