"""Neighbouring ranges become one where every index allows it, whatever sizes are made of."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.common.ranges import simplify
from dovetail.ir import dims
from dovetail.ir.loops import Buffer, Group, Load, Loop, Store
from dovetail.ir.ranges import new_range

N = dims.symbol("n", 1)
SIZES = {"numbers": (4, 6), "symbols": (N, dims.symbol("m", 1)), "halves": (N, dims.floordiv(N + 1, 2))}


def _copy(kind: str, where) -> list[int]:
    """How many ranges are left of three in a copy of `rows` images, read from `where`."""
    rows, size = SIZES[kind]
    device, strides = torch.device("cpu"), (size * size, size, 1)
    x = Buffer("x", torch.float32, device, (rows, size, size), strides, kind="input")
    y = Buffer("y", torch.float32, device, (rows, size, size), strides, kind="output")
    i, j, k = new_range("i", rows), new_range("j", size), new_range("k", size)
    group = Group("g", (i, j, k), (Loop((), (Store(y, (i, j, k), Load(x, where(i, j, k))),)),))
    return len(simplify(group).outer)


@pytest.mark.parametrize("kind", SIZES)
def test_what_lies_one_behind_the_other_is_one_range(kind):
    assert _copy(kind, lambda i, j, k: (i, j, k)) == 1


@pytest.mark.parametrize("kind", SIZES)
def test_what_does_not_is_not(kind):
    assert _copy(kind, lambda i, j, k: (i, k, j)) == 3
    assert _copy(kind, lambda i, j, k: (i, j, dims.floordiv(k, 2))) > 1
    assert _copy(kind, lambda i, j, k: (i, dims.floordiv(j, 2), k)) > 1
