"""Divisions as products, for every number that 31 bits hold."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.gpu import generate
from dovetail.codegen.gpu.reciprocal import Factor, Shift
from dovetail.ir.loops import Group, Load, Loop, Store
from dovetail.ir.ranges import new_range
from dovetail.runtime.gpu import assembler, loading
from tests.codegen.harness import buffer, compare
from tests.codegen_gpu.interpreter import run

MOST = 2**31 - 1


@pytest.mark.parametrize("divisor", [*range(2, 70), 641, 2**16, 2**16 + 1, 50257, 2**30 - 1, 2**30, 2**30 + 1, MOST])
def test_quotient(divisor):
    factor, shift = Factor(divisor).value + 2**32, Shift(divisor).value
    assert 2**31 <= factor < 2**32 and 0 <= shift < 31
    whole = MOST // divisor * divisor
    for number in (0, 1, divisor - 1, divisor, divisor + 1, whole - 1, whole, min(whole + 1, MOST), MOST - 1, MOST):
        assert number * factor >> 32 >> shift == number // divisor
    for number in torch.randint(0, MOST, (500,)).tolist():
        assert number * factor >> 32 >> shift == number // divisor


@pytest.mark.parametrize("sizes", [(3, 5, 7), (2, 64, 33), (1, 1, 9)], ids=str)
def test_digits(sizes):
    """What is transposed has an index along each range."""
    x, y = torch.randn(sizes), torch.empty(sizes).permute(1, 0, 2).contiguous()
    i, j, k = (new_range(name, size) for name, size in zip("ijk", sizes, strict=True))
    group = Group("g", (i, j, k), (Loop((), (Store(buffer("y", y), (j, i, k), Load(buffer("x", x), (i, j, k))),)),))
    compare(group, {"x": x, "y": y}, ["y"], run=run)
    assert ("umulhi" in generate(group).text) is (sizes != (1, 1, 9))


@pytest.mark.parametrize(("width", "wide"), [(64, True), (62, False)])
def test_memory_is_read_widely_where_rows_allow_it(width, wide):
    x, y = torch.empty(40, 50, width), torch.empty(50, 40, width)
    i, j, k = (new_range(name, size) for name, size in zip("ijk", x.shape, strict=True))
    group = Group("g", (i, j, k), (Loop((), (Store(buffer("y", y), (j, i, k), Load(buffer("x", x), (i, j, k))),)),))
    task = loading._task(generate(group), 90, aligned=True)
    code = dict(assembler.stages(task, {}))["ptx"]
    assert "rem." not in code and "div." not in code
    assert ("ld.global.v4" in code) is wide
