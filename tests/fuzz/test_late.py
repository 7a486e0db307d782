"""Random programs with sizes that depend on values. More: `make fuzz-late`."""

from __future__ import annotations

import pytest

from tests.fuzz.late.__main__ import COMMAND


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_programs(start: int) -> None:
    found = {seed: COMMAND.run(seed).difference for seed in range(start, start + 3)}
    assert {seed: words for seed, words in found.items() if words} == {}


#: What larger sweeps found: errors of operators whose results nobody reads, chunks of what has no size yet, a write to
#: one of several views, negative sizes of what is expanded, a part of as many rows as a slice has.
FOUND = (1946, 10561, 10753, 11389, 5000189)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found(seed: int) -> None:
    assert COMMAND.run(seed).difference is None
