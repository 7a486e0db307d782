"""What tests of libraries ask of Dovetail: what was compiled, and that nothing failed or ended a graph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dovetail
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.times import RECORDS


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Each test counts its own compilations, and leaves PyTorch's names as they were."""
    dovetail.reset()
    yield
    dovetail.uninstall()


def compilations(breaks: int | None = 0) -> list[CompileRecord]:
    """All so far, none of which failed, with so many causes of graph breaks in all, if that is known."""
    found = RECORDS.all()
    assert [r.outcome for r in found if r.outcome != "compiled"] == []
    assert breaks is None or len(BREAKS.all()) == breaks, BREAKS.summary()
    return found
