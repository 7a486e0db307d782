"""A few random programs on numbers out of tensors: samples of `tests.fuzz.items` and `tests.fuzz.constants`."""

from __future__ import annotations

import pytest

from tests.fuzz.constants import differs
from tests.fuzz.items import difference, text


@pytest.mark.parametrize("first, count, backend", [(0, 30, "eager"), (60, 20, "dovetail")])
def test_random_programs(first, count, backend):
    found = {text(seed): difference(seed, backend) for seed in range(first, first + count)}
    assert {program: words for program, words in found.items() if words} == {}


def test_tensors_of_constants():
    assert "".join(differs(number) for number in range(30)) == ""
