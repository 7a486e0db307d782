"""A few random training runs; `python -m tests.fuzz.training` takes any number."""

from __future__ import annotations

import pytest

from tests.fuzz.training import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_training(seed):
    assert check(seed) is None
