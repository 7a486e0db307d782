"""A hundred random Python programs, the same ones on every machine. More: `make fuzz-python`."""

from __future__ import annotations

import warnings

import pytest

from tests.fuzz.python.__main__ import COMMAND
from tests.fuzz.python.generate import generate
from tests.fuzz.python.reduce import reduced


@pytest.mark.parametrize("start", range(0, 120, 15))
def test_random_programs(start):
    warnings.simplefilter("ignore", SyntaxWarning)  # `1 is None`
    found = {seed: COMMAND.run(seed, "eager").difference for seed in range(start, start + 15)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_the_same_seed_gives_the_same_program():
    assert generate(3) == generate(3)


def test_a_program_is_reduced_to_what_fails():
    text = "a = 1\nif a:\n    b = [len('x') + 2, 5]\n    c = 3\nprint(b)\n"
    assert reduced(text, lambda t: "len(" in t) == "b = len('x')"
