"""Zeros that are written to at a few indices are loops; others stay with the library."""

from __future__ import annotations

import pytest
import torch

import dovetail
from tests.ops.checking import check

aten = torch.ops.aten

X = torch.linspace(-2, 2, 15).sin().reshape(3, 5)
I, TWICE = torch.tensor([2, 0, 4]), torch.tensor([[1, 1], [0, 3], [2, 2]])
ROWS = torch.tensor([1, 3, 1])

CASES = {
    "scatter_add": lambda x, i: x.new_zeros(3, 9).scatter_add(1, i[:, None], x),
    "scatter_add, fewer sources": lambda x, i: x.new_zeros(3, 9).scatter_add(1, TWICE, x),
    "scatter_add along the first": lambda x, i: x.new_zeros(6, 3).scatter_add(0, i[None] % 3, x),
    "scatter": lambda x, i: x.new_zeros(3, 9).scatter(1, i[:, None], x),
    "scatter a number": lambda x, i: x.new_zeros(3, 9).scatter(1, TWICE, 2.5),
    "scatter in integers": lambda x, i: i.new_zeros(3, 9).scatter(1, TWICE, 1),
    "scatter to truth": lambda x, i: torch.zeros(3, 9, dtype=torch.bool).scatter(-1, TWICE, True),
    "index_add": lambda x, i: x.new_zeros(7, 5).index_add(0, ROWS, x, alpha=2),
    "index_add behind": lambda x, i: x.new_zeros(5, 7).index_add(1, ROWS, x.t()),
    "index_put": lambda x, i: x.new_zeros(7, 5).index_put([ROWS], x, True),
    "index_put from the end": lambda x, i: x.new_zeros(7, 5).index_put([ROWS - 4], x, True),
    "index_put of two": lambda x, i: x.new_zeros(7, 4, 5).index_put([ROWS, ROWS], x, True),
    "index_put of two apart": lambda x, i: aten.index_put(x.new_zeros(7, 5, 4), [ROWS, None, ROWS], x, True),
    "index_put that broadcasts": lambda x, i: x.new_zeros(7, 4).index_put([ROWS[:, None], ROWS[:2]], x[:, :1], True),
    "then more": lambda x, i: x.new_zeros(3, 9).scatter_add(1, i[:, None], x.exp()).sin().sum(1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_loops(name, dtype):
    check(CASES[name], X.to(dtype), I, loops=True)


@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding(padding):
    check(lambda x, i: aten.embedding_dense_backward(x, i, 6, padding, False), X, ROWS, loops=True)


@pytest.mark.parametrize("fn", [
    lambda x, i: x.scatter_add(1, i[:, None], x),  # to what is not zero
    lambda x, i: torch.arange(7.0).index_add(0, ROWS, x[:, 0]),
    lambda x, i: torch.eye(3, 9).scatter(1, i[:, None], 2.0),
    lambda x, i: torch.full((7,), -0.0).index_add(0, ROWS, x[:, 0]),
    lambda x, i: torch.arange(7).unsqueeze(1).expand(7, 5).index_put([ROWS], i.new_ones(3, 5), True),
    lambda x, i: x.new_zeros(3, 9).scatter_add(1, torch.arange(9).expand(3, 9), x.repeat(1, 2)),  # many
    lambda x, i: x.new_zeros(4, 9).scatter_add(1, i[:, None], x),  # not all rows
    lambda x, i: x.new_zeros(7, 5).index_put([ROWS], x),
    lambda x, i: x.new_zeros(7, 5).index_put([x[:, 0].new_ones(7).bool()], x[:1], True),
    lambda x, i: torch.zeros(7, 5, dtype=torch.bool).index_put([ROWS], x > 0, True),
    lambda x, i: x.new_zeros(()).index_add(0, i[1:2], x[0, :1].sum()),
])
def test_left_to_the_library(fn):
    check(fn, X, I, loops=False)


@pytest.mark.parametrize("fn", [
    lambda x, i: x.new_zeros(3, 2).scatter_add(1, i[:, None], x),
    lambda x, i: x.new_zeros(3, 2).scatter(1, i[:, None], 1.0),
    lambda x, i: x.new_zeros(3, 5).index_add(0, i, x),
    lambda x, i: x.new_zeros(3, 5).index_put([i], x, True),
])
def test_indices_that_are_not_there(fn):
    with pytest.raises((IndexError, RuntimeError)) as eager:
        fn(X, I)
    with pytest.raises(type(eager.value)) as compiled:
        dovetail.compile(fn)(X, I)
    assert str(compiled.value) == str(eager.value)
