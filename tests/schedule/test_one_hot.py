"""Sums of one element at most."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Group, Reduce
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.schedule.fusion.one_hot import without_one_hot

TEXT = """\
input a: float32[6, 8]
input l: int64[6]
output b: float32[6, 8]
group g for i < 6
  loop j < 8
    r0: float32 = sum({value})
  loop k < 8
    b[i, k] = a[i, k] - r0
output b
"""
SUMS = {
    "one hot": ("where(l[i] == index(j), a[i, 0], 0.0)", True),
    "the other way round": ("where(index(j) == l[i], a[i, 0], 0.0)", True),
    "and more": ("where((l[i] != 2) & (l[i] == index(j)) & (a[i, 0] > 0.0), a[i, 3], 0.0)", True),
    "rounded": ("float32(bfloat16(where(l[i] == index(j), a[i, 0], 0.0)))", True),
    "each its own value": ("where(l[i] == index(j), a[i, j], 0.0)", False),
    "a condition of its own": ("where((l[i] == index(j)) & (a[i, j] > 0.0), a[i, 0], 0.0)", False),
    "something else elsewhere": ("where(l[i] == index(j), a[i, 0], 1.0)", False),
    "another index": ("where(l[i] == index(7 - j), a[i, 0], 0.0)", False),
    "either": ("where((l[i] == index(j)) | (a[i, 0] > 0.0), a[i, 0], 0.0)", False),
}


@pytest.mark.parametrize("name", SUMS)
def test_sum(name):
    value, found = SUMS[name]
    before = parse_program(TEXT.format(value=value))
    (group,) = before.items
    assert isinstance(group, Group)
    after = before.with_items((Group("g", group.outer, tuple(without_one_hot(list(group.loops)))),))
    verify(after)
    assert found is not any(isinstance(s, Reduce) for s in after.items[0].statements())  # type: ignore[union-attr]
    given = torch.randn(6, 8), torch.tensor([0, 7, 2, -1, 8, 5])
    torch.testing.assert_close(evaluate(after, given), evaluate(before, given))
