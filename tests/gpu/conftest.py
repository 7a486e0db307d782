"""What programs on a device share."""

from __future__ import annotations

import pytest

from dovetail.schedule import recording


@pytest.fixture
def small_programs_are_recorded(monkeypatch):
    monkeypatch.setattr(recording, "FEWEST", 1)
