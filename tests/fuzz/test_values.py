"""Operations on values that differ, a few of them. More: `make fuzz-values`."""

from __future__ import annotations

import pytest

from tests.fuzz.values.__main__ import COMMAND, check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(0, 60, 30))
def test_random_operations(start):
    found = {seed: COMMAND.run(seed).difference for seed in range(start, start + 15)}
    assert {seed: words for seed, words in found.items() if words} == {}


def test_a_difference_is_seen():
    program = "made = []\ndef operation(x, a, b):\n    return made.append(a) or len(made)\n"
    program += "def calls():\n    yield 1, 2\n"
    assert check(program).difference == "call 0: result: ('int', '2'), eager ('int', '1')"
