"""Long reductions of a few columns are done in stretches; the result is as if they were not."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.lowering.emit import two_stages
from dovetail.ops.lowering.value import Spec

REDUCTIONS = {
    "sum": lambda x, d, k: x.sum(d, keepdim=k), "mean": lambda x, d, k: (x * 2 + 1).mean(d, keepdim=k),
    "amax": lambda x, d, k: x.amax(d, keepdim=k), "var": lambda x, d, k: x.var(d, keepdim=k),
    "any": lambda x, d, k: (x > 3).any(d[0], keepdim=k), "argmax": lambda x, d, k: x.argmax(d[0], keepdim=k),
    "half": lambda x, d, k: x.bfloat16().sum(d, keepdim=k),
}  # fmt: skip


def spec(*sizes):
    return Spec(torch.float32, torch.device("cpu"), sizes, contiguous_strides(sizes))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape, dims", [((1 << 17, 4), (0,)), ((96 * 1024, 1, 3), (0,)), ((512, 130, 5), (0, 1)),
                                         ((130, 2, 512, 3), (0, 2)), ((1 << 17, 4), (-2,))])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_as_eager(name, shape, dims, keepdim):
    torch.manual_seed(0)
    x, fn = torch.randn(shape), REDUCTIONS[name]
    with torch.no_grad():
        got = dovetail.compile(lambda x: fn(x, dims, keepdim), fullgraph=True)(x)
        want = fn(x, dims, keepdim)
    slack = {"rtol": 1e-2, "atol": 8.0} if name == "half" else {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(got, want, **slack)


@pytest.mark.parametrize("source, reduced, expected", [
    (spec(1 << 17, 4), {0}, (0, 64)), (spec(512, 130, 5), {0, 1}, (0, 64)), (spec(1 << 17, 3), {0}, (0, 64)),
    (spec(4, 1 << 17), {1}, None), (spec(1 << 17, 64), {0}, None), (spec(1024, 4), {0}, None),
    (spec(1 << 20), {0}, None), (spec(999983, 4), {0}, None), (spec(2, 1 << 17, 4), {1}, (1, 64)),
])  # fmt: skip
def test_which_ones(source, reduced, expected):
    assert two_stages(source, reduced) == expected
