"""Graphs that end at a test for truth. Some Pythons convert there first: an instruction with an inline cache."""

from __future__ import annotations

import pytest
import torch

import dovetail


class Counted:
    made = 0


def failing(x):
    Counted.made += 1
    if torch.equal(x, x):
        raise ValueError("it does")
    return x


def going_on(x):
    Counted.made += 1
    if x.sum().item() > 0:
        x = x + 1
    return x * 2 if not torch.equal(x, x * 2) else x


@pytest.mark.parametrize("function", [failing, going_on])
def test_the_rest_runs_once(function):
    found = []
    for call in (function, dovetail.compile(function, backend="eager")):
        Counted.made = 0
        try:
            result = call(torch.ones(3)).tolist()
        except ValueError as error:
            result = str(error)
        found.append((result, Counted.made))
    assert found[0] == found[1] and Counted.made == 1
