"""Which range is a vector: a row where it is long enough to pay for folding the lanes, rows side by side otherwise."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.common import ranges
from dovetail.codegen.cpu import axis
from dovetail.codegen.cpu.target import Processor
from dovetail.options import Options
from dovetail.schedule import schedule
from tests.schedule.test_meaning import lowered

WIDE = Processor(64, True)


def along_rows(fn, length: int) -> bool:
    (group,) = schedule(lowered(fn, torch.ones(512, length)), Options()).items
    return axis.choose(ranges.simplify(group), WIDE).outer is None


@pytest.mark.parametrize(
    ("fn", "shortest"),
    [(lambda x: x.sum(-1), 16), (lambda x: (x * x).sum(-1), 16), (lambda x: x.amax(-1), 32),
     (lambda x: x.argmax(-1), 64), (lambda x: torch.softmax(x, -1), 8)],
    ids=["sum", "sum of squares", "amax", "argmax", "softmax"],
)  # fmt: skip
def test_rows(fn, shortest):
    lengths = (2, shortest // 2, shortest, 4 * shortest)
    assert [along_rows(fn, length) for length in lengths] == [False, False, True, True]


def test_columns():
    assert not along_rows(lambda x: x.sum(0), 64)
