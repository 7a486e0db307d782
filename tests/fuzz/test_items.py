"""A few random programs on numbers out of tensors: a sample of `python -m tests.fuzz.items`."""

from __future__ import annotations

import pytest

from tests.fuzz.items import difference, text


@pytest.mark.parametrize("first, count, backend", [(0, 60, "eager"), (60, 12, "dovetail")])
def test_random_programs(first, count, backend):
    found = {text(seed): difference(seed, backend) for seed in range(first, first + count)}
    assert {program: words for program, words in found.items() if words} == {}
