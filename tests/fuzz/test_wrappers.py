"""Random programs on tensors that are made of others: a sample of `python -m tests.fuzz.wrappers`."""

from __future__ import annotations

import pytest

from tests.fuzz.wrappers import difference, generate


@pytest.mark.parametrize("start", (0, 20))
def test_random_programs(start):
    found = {seed: difference(seed) for seed in range(start, start + 20)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_the_same_seed_gives_the_same_program():
    assert generate(5) == generate(5) != generate(6)
