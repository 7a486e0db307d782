"""The collector's absence while something is compiled."""

from __future__ import annotations

import gc

import pytest

from dovetail.ir import process


class Cycle:
    def __init__(self):
        self.itself = self


def young():
    return {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}


@pytest.fixture
def thawed(monkeypatch):
    """The heap seems to be as programs have it: that of tests is frozen, and is again afterwards."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(process.UNSEEN, "frozen", False)
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("count", [process.UNSEEN.few // 2, 2 * process.UNSEEN.few])
def test_many_new_objects_are_not_looked_through_when_it_comes_back(count):
    gc.collect()
    with process.paused_collection():
        made = [[] for _ in range(count)]
    assert gc.isenabled()
    assert (id(made[0]) in young()) is (count < process.UNSEEN.few)


def test_objects_that_the_program_has_frozen_are_counted_once(monkeypatch):
    asked = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or 5)
    monkeypatch.setattr(process.UNSEEN, "frozen", False)
    for _ in range(2):
        with process.paused_collection():
            made = [[] for _ in range(2 * process.UNSEEN.few)]
        assert id(made[-1]) in young()
    assert asked == [1]


def test_what_is_left_in_cycles_does_not_add_up(monkeypatch):
    monkeypatch.setattr(process.UNSEEN, "count", 0)
    monkeypatch.setattr(process.UNSEEN, "most", 3 * process.UNSEEN.few)
    for _ in range(3):
        with process.paused_collection():
            for _ in range(2 * process.UNSEEN.few):
                Cycle()
    found = sum(type(each) is Cycle for each in gc.get_objects())
    assert found <= 2 * process.UNSEEN.few


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with process.paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
