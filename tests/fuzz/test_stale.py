"""A sample of `python -m tests.fuzz.stale`."""

from __future__ import annotations

from tests.fuzz.stale import changed, check


def test_what_was_changed_is_compiled_anew():
    wrong, taken = check(range(10))
    assert not wrong, wrong
    assert taken > 16


def test_a_change_is_one():
    before, after, names = changed(3)
    assert before != after and names != "{}"
