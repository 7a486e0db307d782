"""What tests of the guards share."""

from __future__ import annotations

import pytest

from dovetail.guards import bulk
from dovetail.guards.layout import discover


@pytest.fixture(params=["words in memory", "loops in C"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with the facts checked as words and through Python."""
    if request.param == "words in memory" and discover() is None:
        pytest.skip("the layout of this interpreter is unknown")
    monkeypatch.setattr(bulk, "_MANY", 1 if request.param == "words in memory" else 10**9)
