"""A sample of `python -m tests.fuzz.stale`."""

from __future__ import annotations

from tests.fuzz.stale import changed, check
from tests.kept.processes import Processes


def test_what_was_changed_is_compiled_anew():
    processes = Processes()
    wrong, taken = check(range(16), processes)
    processes.close()
    assert not wrong, wrong
    assert taken > 16


def test_a_change_is_one():
    before, after, names = changed(3)
    assert before != after and names != "{}"
