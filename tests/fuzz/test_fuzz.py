"""A few hundred random programs, the same ones on every machine. More: `python -m tests.fuzz.check FIRST LAST`."""

from __future__ import annotations

import pytest

import dovetail
from tests.fuzz.check import check
from tests.fuzz.generate import generate


@pytest.mark.parametrize("mutation, overlap", [(0.0, False), (0.3, False), (0.3, True)],
                         ids=["pure", "mutation", "overlapping inputs"])
@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_programs(start, mutation, overlap):
    for seed in range(start, start + 20):
        check(generate(seed + int(1000 * mutation) + 5000 * overlap, 6 + seed % 12, mutation, overlap))
    dovetail.reset()


def test_the_same_seed_gives_the_same_program():
    assert generate(3).source == generate(3).source


def test_programs_differ():
    assert len({generate(seed).source for seed in range(20)}) == 20
