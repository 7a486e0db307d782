"""A few random models of layers that are almost equal; `python -m tests.fuzz.layers` takes any number."""

from __future__ import annotations

import pytest

from tests.fuzz.layers import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_layers(seed):
    assert check(seed) is None
