"""A few random models of many layers; `python -m tests.fuzz.turns` takes any number."""

from __future__ import annotations

import pytest

from tests.fuzz.turns import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [7, 10, 35])
def test_turns(seed):
    assert check(seed) is None
