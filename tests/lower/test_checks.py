"""Indices are checked unless it is known that they are places of the dimension."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail.ir.loops import Check, Group
from tests.schedule.test_meaning import lowered

X, TABLE, NUMBERS = torch.randn(6, 8), torch.randn(8, 3), torch.randint(0, 8, (6,))


def checks(fn) -> int:
    program = lowered(fn, X, TABLE, NUMBERS)
    return sum(isinstance(s, Check) for item in program.items if isinstance(item, Group) for s in item.statements())


@pytest.mark.parametrize("fn", [
    lambda x, t, n: t[x.topk(2)[1].view(-1)],
    lambda x, t, n: x.gather(1, x.argmax(1, keepdim=True)),
    lambda x, t, n: F.embedding(n % 8, t),
    lambda x, t, n: x.index_select(0, x.max(0)[1].reshape(2, 4).t().flatten()),
    lambda x, t, n: t[n.argsort() // 2],
    lambda x, t, n: t[torch.empty_like(n).index_put((n.argsort(),), torch.arange(6))],
])  # fmt: skip
def test_known(fn):
    assert checks(fn) <= 1  # of what an inverse is put at


@pytest.mark.parametrize("fn", [
    lambda x, t, n: t[n],
    lambda x, t, n: t[x.argmax(1) + 1],
    lambda x, t, n: t[:7][x.argmax(1)],
    lambda x, t, n: t[x.argmax()[None]],
    lambda x, t, n: F.embedding(n % 9, t),
    lambda x, t, n: t[(n.argsort() // 2).to(torch.int32)],
])  # fmt: skip
def test_unknown(fn):
    assert checks(fn) == 1
