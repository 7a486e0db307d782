"""A few random convolutional networks; `python -m tests.fuzz.images` takes any number."""

from __future__ import annotations

import pytest

from tests.fuzz.images import check


@pytest.mark.parametrize("seed", range(24))
def test_training_step(seed):
    assert check(seed, ("dovetail", "aot_eager")[seed % 2]) is None
