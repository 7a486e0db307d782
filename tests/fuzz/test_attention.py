"""A few random calls of `flex_attention`: a sample of `python -m tests.fuzz.attention`."""

from __future__ import annotations

import pytest

from tests.fuzz.attention import difference


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_calls(start):
    found = {seed: difference(seed) for seed in range(start, start + 10)}
    assert {seed: words for seed, words in found.items() if words} == {}
