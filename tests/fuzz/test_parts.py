"""A few random programs that take tensors apart and together; `python -m tests.fuzz.parts` takes any number."""

from __future__ import annotations

import pytest

from tests.fuzz.parts import check


@pytest.mark.parametrize("seed", range(36))
def test_program(seed):
    assert check(seed) is None
