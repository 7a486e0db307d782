"""A few random calls of `flex_attention` and attention that is written out: a sample of `make fuzz-attention`."""

from __future__ import annotations

import pytest

from tests.fuzz import written_attention
from tests.fuzz.attention import difference


@pytest.mark.parametrize("start", range(0, 20, 10))
def test_random_calls(start):
    found = {seed: difference(seed) for seed in range(start, start + 3)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_random_attention_that_is_written_out():
    found = {seed: written_attention.difference(seed) for seed in range(8)}
    assert {seed: words for seed, words in found.items() if words} == {}
