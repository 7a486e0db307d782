"""A crash in one of many processes costs one item, which is named."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from tests.fuzz import workers


def square(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 9:
        os._exit(7)
    if number == 5:
        raise workers.Spoilt(number * number)
    return number * number


@pytest.mark.parametrize(("count", "start", "items"), [(1, "fork", 10), (2, "fork", 10), (1, "spawn", 5)])
def test_every_item_has_a_result(count, start, items, monkeypatch):
    """Processes are forked where this one has used no GPU. Each that is not imports PyTorch."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: start == "spawn")
    assert workers.context().get_start_method() == start
    found = list(workers.spread(square, range(items), count, lambda item, how: (item, how), block=4))
    crashed = {3: "SIGKILL", 9: "exit status 7"}
    assert sorted(found, key=str) == sorted([(k, crashed[k]) if k in crashed else k * k for k in range(items)], key=str)


def test_what_is_not_wanted_is_not_waited_for():
    results = workers.spread(square, range(3), 1, lambda item, how: -1)
    assert next(results) == 0
    results.close()
