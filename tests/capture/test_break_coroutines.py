"""Coroutines that live on after a graph break, or leave the compiled function."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

import dovetail

closed: list[str] = []


async def leaf(x):
    await asyncio.sleep(0)
    if x.sum() > 0:
        x = x * 2
    await asyncio.sleep(0)
    return x + 1


async def outer(x):
    return await leaf(x) + await leaf(-x)


async def watched(x):
    try:
        await asyncio.sleep(0)
    finally:
        closed.append("closed")


def started(x):
    made = outer(x)
    made.send(None)
    return made


def driven(x):
    made, steps = outer(x), 0
    dovetail.graph_break()
    try:
        while True:
            made.send(None)
            steps += 1
    except StopIteration as stop:
        return stop.value, steps


@pytest.mark.parametrize("function", [leaf, outer, started])
def test_one_that_leaves_is_awaited_outside(function: Any) -> None:
    compiled = dovetail.compile(lambda x: function(x), backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        made = compiled(x)
        assert asyncio.iscoroutine(made)
        torch.testing.assert_close(asyncio.run(made), asyncio.run(function(x)))


def test_one_goes_on_after_a_break() -> None:
    compiled = dovetail.compile(driven, backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        (value, steps), (expected, number) = compiled(x), driven(x)
        torch.testing.assert_close(value, expected)
        assert steps == number


@pytest.mark.parametrize("end", [lambda c: c.close(), lambda c: c.throw(GeneratorExit())])
def test_one_that_leaves_runs_its_finally(end: Any) -> None:
    def run(x):
        made = watched(x)
        made.send(None)
        return made

    closed.clear()
    made = dovetail.compile(run, backend="eager")(torch.ones(2))
    assert not closed
    try:
        end(made)
    except GeneratorExit:
        pass
    assert closed == ["closed"]
