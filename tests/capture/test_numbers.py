"""NumPy's scalars in traced code are numbers like Python's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dovetail.capture.driver import capture
from dovetail.errors import Unsupported
from tests.capture.harness import OPTIONS, check

X = torch.linspace(0.5, 2, 6)
WIDTH = np.int64(16)


def in_place(x):
    y = x.clone()
    y *= np.sqrt(64)
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * np.sqrt(WIDTH), lambda x: np.float64(2.5) * x, lambda x: x + np.float32(0.1), in_place,
        lambda x: x / np.prod((2, 3)), lambda x: x[: np.int64(3)], lambda x: x.reshape(np.int64(2), 3),
        lambda x: (x, np.log(3.0), np.float32(2) + 1), lambda x: x.sum() * float(np.exp(np.float16(1))),
        lambda x: torch.full((2,), np.pi) + np.maximum(1, 2), lambda x: x * np.ceil(1.5).astype(int),
        lambda x: x * 2 if np.any([False, True]) else x, lambda x: x + np.float64(1).item(),
    ],
)  # fmt: skip
def test_equal_to_eager(function):
    check(function, X)


def test_argument():
    check(lambda x, scale: x * scale, X, np.float64(3))


@pytest.mark.parametrize("function", [lambda x: x + torch.from_numpy(np.add([1.0] * 6, 1)), lambda x: np.exp(x)])
def test_arrays_break_the_graph(function):
    with pytest.raises(Unsupported):
        capture(function, (X,), {}, OPTIONS)
