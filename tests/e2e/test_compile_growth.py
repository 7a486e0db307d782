"""A sample of `make growth`: four times the program is not sixteen times the work to compile it."""

from __future__ import annotations

import os

import pytest

from tests.e2e.compile_growth import TIMES, growth


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_work_grows_with_the_program():
    """It was 4.7 times as much for a step of ASGD, and more the larger it was."""
    first, second = growth("ASGD, lists", 8)
    assert first < second < TIMES * first
