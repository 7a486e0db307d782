"""Random programs on one row, a few and single elements: scheduled, they compute what they are told to."""

from __future__ import annotations

import random

import pytest
import torch

from dovetail.ir.evaluate import evaluate
from dovetail.options import Options
from dovetail.schedule import schedule
from tests.schedule.test_meaning import lowered

#: A value of (rows, width) to another; `w` is (width, 3), `v` (width,).
STEPS = {
    "sum": lambda x, w, v: x.sum(-1, keepdim=True),
    "mean of all": lambda x, w, v: x.mean(),
    "columns": lambda x, w, v: x.sum(0, keepdim=True),
    "softmax": lambda x, w, v: torch.softmax(x, -1),
    "norm": lambda x, w, v: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3),
    "vector": lambda x, w, v: x @ v if x.shape[-1:] == v.shape else x + v.sum(),
    "matrix": lambda x, w, v: x @ w if x.shape[-1:] == v.shape else x * w.sum(0).max(),
    "largest": lambda x, w, v: x - x.amax(),
    "scaled": lambda x, w, v: x * v.mean() + 0.5,
    "square": lambda x, w, v: x * x,
}


def program(seed):
    draw = random.Random(seed)
    names = [draw.choice(list(STEPS)) for _ in range(draw.randint(2, 5))]
    names = [draw.choice(("softmax", "norm")), "matrix"] if draw.random() < 0.2 else names
    back = [draw.random() < 0.4 for _ in names]

    def fn(x, w, v):
        read, y = (-x, -w, -v), x  # in this order
        for name, again in zip(names, back):
            y = STEPS[name](y, w, v)
            y = y * x.mean() if again and y.dim() == 0 else x * y if again and y.numel() == 1 else y
        return *read, y

    return fn, draw.choice([1, 1, 2, 5]), draw.choice([4, 4, 33, 1])


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs(first):
    for seed in range(first, first + 20):
        fn, rows, width = program(seed)
        torch.manual_seed(seed)
        args = torch.rand(rows, width) + 0.5, torch.rand(width, 3) - 0.3, torch.rand(width) - 0.2
        want = fn(*args)
        for got, exact in zip(evaluate(schedule(lowered(fn, *args), Options()), args), want, strict=True):
            torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-5, msg=f"program {seed}")
