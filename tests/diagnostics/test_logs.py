"""What asking for logs costs those who did not."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

import dovetail
from dovetail.diagnostics import logs


def test_asking_whether_a_log_is_on_takes_no_lock_of_the_process():
    """Ctrl-C while such a lock is taken leaves it taken, and other threads would never compile again."""
    logs.is_on("guards")
    held, asked = threading.Event(), threading.Event()

    def hold():
        with logging._lock:
            held.set()
            asked.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    asker = threading.Thread(target=logs.is_on, args=("guards",))
    asker.start()
    asker.join(5)
    waits = asker.is_alive()
    asked.set()
    holder.join()
    assert not waits


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_program_that_shows_its_own_messages_sees_none_of_ours(caplog, level):
    def function(x):
        return x.sin() + 1

    with caplog.at_level(level):
        dovetail.compile(function)(torch.ones(2))
        assert [record.name for record in caplog.records if record.name.startswith("dovetail")] == []
        with caplog.at_level(level, "dovetail.graph_code"):
            dovetail.compile(function, dynamic=True)(torch.ones(2))
    assert {record.name for record in caplog.records} >= {"dovetail.graph_code"}
