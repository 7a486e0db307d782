"""What programs on a device share."""

from __future__ import annotations

import pytest

from dovetail.schedule.launch import cuda_graphs


@pytest.fixture
def small_programs_are_recorded(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "FEWEST", 1)


def pytest_itemcollected(item):
    """What cannot run as compiled runs eagerly, with a warning: no test passes for that."""
    item.add_marker(pytest.mark.filterwarnings("error:dovetail runs"))
