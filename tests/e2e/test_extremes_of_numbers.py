"""`min` and `max` of numbers that change from call to call."""

from __future__ import annotations

import math

import torch

import dovetail


def test_which_number_it_is_chooses_no_path():
    def fn(x, a):
        return x * max(1.0, a / 2) + min(a, 3.0, -a)

    compiled, x = dovetail.compile(fn, fullgraph=True), torch.arange(3.0)
    for a in (1.0, 4.0, 0.5, -7.0, math.nan, 9.0, -0.0):
        torch.testing.assert_close(compiled(x, a), fn(x, a), equal_nan=True)
    assert len(compiled._dovetail_dispatcher.entries) == 2


def test_a_key_and_other_types_are_as_before():
    def fn(x, a, n):
        return x * max(a, -a, key=abs) + min(n, 2) + max(n, a)

    compiled, x = dovetail.compile(fn, fullgraph=True), torch.arange(3.0)
    for a, n in ((1.0, 1), (-4.0, 5), (0.5, 0), (7.5, 3)):
        torch.testing.assert_close(compiled(x, a, n), fn(x, a, n))
