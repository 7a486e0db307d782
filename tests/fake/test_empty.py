"""Tensors without elements: some kernels take them and some do not, whatever PyTorch's meta kernels say."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import dovetail

X = torch.ones(2, 3, 4, 5)
YES = torch.ones(3, 3, dtype=torch.bool)
CASES = {
    "no images, made larger": lambda: F.interpolate(X[:0], scale_factor=2),
    "no images, exactly": lambda: F.interpolate(X[:0], size=(3, 3), mode="nearest-exact"),
    "no images, linear": lambda: F.interpolate(X[:0], scale_factor=2, mode="bilinear"),
    "no channels": lambda: F.interpolate(X[:, :0], scale_factor=2),
    "no channels, linear": lambda: F.interpolate(X[:, :0], scale_factor=2, mode="bilinear"),
    "no channels, cubic": lambda: F.interpolate(X[:, :0], scale_factor=2, mode="bicubic", antialias=True),
    "no rows": lambda: F.interpolate(X[:, :, :0], size=(8, 8)),
    "no rows, linear": lambda: F.interpolate(X[:, :, :0], size=(8, 8), mode="bilinear"),
    "no points in a line": lambda: F.interpolate(X[0, :, :, :0], size=3, mode="linear"),
    "the length of nothing": lambda: X[:0].norm(),
    "the largest of nothing": lambda: X[:0].norm(float("inf")),
    "the smallest of nothing along a dimension": lambda: X[:, :0].norm(-1, dim=1),
    "the largest of nothing along another": lambda: X[:, :0].norm(float("inf"), dim=2),
    "images of other sizes than their labels": lambda: F.nll_loss(X, torch.zeros(2, 0, 5, dtype=torch.int64)),
    "no images to compare": lambda: F.nll_loss(X[:0], torch.zeros(0, 4, 5, dtype=torch.int64), reduction="none"),
    "no numbers by zero": lambda: (torch.ones(2, 0, dtype=torch.int64) % 0, torch.ones(0, dtype=torch.int64) // 0),
    "products of truths": lambda: (YES[:0] @ YES, YES[:, :0] @ YES[:0], YES.inner(YES[:0]), YES[:0] @ YES[0]),
    "products of truths, added up": lambda: torch.addmm(YES, YES[:, :0], YES[:0], beta=0),
    "products of truths, added to others": lambda: torch.addmm(YES, YES[:, :0], YES[:0]),
    "batches of two types": lambda: YES[None, :, :0].bmm(YES[None, :0].half()),
    "places along nothing": lambda: X[0, 0, :, :0].take_along_dim(torch.zeros(4, 0, dtype=torch.int64), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_like_eager(name: str) -> None:
    found = []
    for function in (CASES[name], dovetail.compile(CASES[name])):
        try:
            results = pytree.tree_leaves(function())
            found.append([(result.shape, result.stride(), result.tolist()) for result in results])
        except (RuntimeError, IndexError) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]


def test_products_of_sizes_that_come_to_be_none() -> None:
    @dovetail.compile
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bij,bjk->ki", a, b)

    for rows, inner, columns in ((0, 0, 0), (0, 0, 3), (0, 3, 0)):
        a, b = torch.ones(2, rows, inner), torch.ones(2, inner, columns, dtype=torch.complex64)
        assert product(a, b).shape == (columns, rows)
