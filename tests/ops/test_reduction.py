"""Reductions, softmax and normalizations against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.ops.checking import check, check_operator

REDUCTIONS = {
    "sum": lambda x, **k: x.sum(**k), "mean": lambda x, **k: x.mean(**k), "prod": lambda x, **k: x.prod(**k),
    "amax": lambda x, **k: x.amax(**k), "amin": lambda x, **k: x.amin(**k), "any": lambda x, **k: (x > 0).any(**k),
    "all": lambda x, **k: (x > -1).all(**k), "argmax": lambda x, **k: x.argmax(**k),
    "argmin": lambda x, **k: x.argmin(**k), "var": lambda x, **k: x.var(**k), "std": lambda x, **k: x.std(**k),
    "norm": lambda x, **k: torch.linalg.vector_norm(x, **k), "logsumexp": lambda x, **k: x.logsumexp(**k),
    "count_nonzero": lambda x, **k: (x > 0).sum(**k),
    "max": lambda x, **k: x.max(**k), "min": lambda x, **k: x.min(**k),
}
ONE_DIM = {"prod", "argmax", "argmin", "max", "min"}
NO_FULL = {"logsumexp"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dim, dtype):
    if isinstance(dim, tuple) and name in ONE_DIM or dim is None and name in NO_FULL:
        dim = 2
    x = torch.randn(3, 4, 5).to(dtype)
    for keepdim in (False, True):
        options = {} if dim is None else {"dim": dim, "keepdim": keepdim}
        check(lambda t: REDUCTIONS[name](t, **options), x, loops=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "argmax", "max", "min", "any", "all"])
def test_reductions_of_integers(name, dtype):
    if dtype is torch.bool and name in ("argmax", "amax", "amin", "prod"):
        dtype = torch.int8
    x = torch.randint(0, 5, (3, 4)).to(dtype)
    check(lambda t: (REDUCTIONS[name](t, dim=1), REDUCTIONS[name](t)), x, loops=True)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, math.inf, -math.inf])
def test_norms(order):
    check(lambda x: (torch.linalg.vector_norm(x, order, 1), torch.norm(x, order)), torch.randn(4, 5), loops=True)


@pytest.mark.parametrize("correction", [0, 1, 2, 4, 7])
def test_variances(correction):
    x = torch.randn(4, 4)
    check(lambda t: (t.var(1, correction=correction), torch.var_mean(t, 0, correction=correction)), x, loops=True)
    check(lambda t: (torch.std_mean(t, 1, keepdim=True), t.var(), t.std(unbiased=False)), x, loops=True)


def test_variance_of_large_numbers_is_as_accurate_as_eagers():
    x = torch.randn(64, 1000) + 1e4
    check(lambda t: t.var(1), x, loops=True)


SPECIAL = torch.tensor([[1.0, math.nan, 3.0], [math.inf, 1.0, -math.inf], [-math.inf, -math.inf, -math.inf], [2, 2, 1]])


@pytest.mark.parametrize("name", [n for n in REDUCTIONS if n not in ("argmin",)])
def test_reductions_of_special_values(name):
    check(lambda t: REDUCTIONS[name](t, dim=1), SPECIAL, loops=True)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4, 1)], ids=str)
def test_reductions_of_single_elements(shape):
    x = torch.randn(shape)
    check(lambda t: (t.sum(), t.mean(), t.amax(), t.argmax(), t.prod(), t.any(), t.softmax(-1), t.log_softmax(-1)), x)
    check(lambda t: (t.sum(-1), t.argmin(-1), t.max(-1), t.logsumexp(-1)), x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)], ids=str)
def test_reductions_of_nothing(shape):
    check(lambda t: (t.sum(), t.mean(), t.prod(), (t > 0).any(), (t > 0).all(), t.sum(0), t.softmax(0), t.var()),
          torch.randn(shape))
    check(lambda t: t.amax(-1), torch.randn(0, 3))


LAYOUTS = [lambda: torch.randn(5, 4).t(), lambda: torch.randn(4, 1).expand(4, 5), lambda: torch.randn(8, 10)[::2, ::2]]


@pytest.mark.parametrize("make", LAYOUTS)
def test_reductions_over_other_layouts(make):
    check(lambda t: (t.sum(0), t.argmax(), t.argmax(1), t.max(0), t.softmax(0), t.mean(1), t.var(0)), make())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim, dtype):
    x = (torch.randn(3, 4, 5) * 5).to(dtype)
    check(lambda t: (t.softmax(dim), t.log_softmax(dim), F.softmin(t, dim)), x, loops=True)
    check(lambda t: (t.softmax(dim, dtype=torch.float32), t.log_softmax(dim, dtype=torch.float64)), x, loops=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_without_a_row(dim):
    hidden = torch.randn(4, 6).masked_fill(torch.arange(6) > 3, -math.inf)
    hidden[2] = -math.inf
    for x in (hidden, hidden.bfloat16(), SPECIAL, hidden[2, 2], hidden[0, 0]):
        check(lambda t: torch.ops.aten._safe_softmax(t, dim if t.dim() else 0), x, loops=True)
    check(lambda t: torch.ops.aten._safe_softmax(t, dim, torch.float32), hidden.bfloat16(), loops=True)


def test_softmax_of_special_values():
    check(lambda t: (t.softmax(1), t.log_softmax(1), t.logsumexp(1)), SPECIAL, loops=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_layer_norm(dtype):
    x, w, b = (v.to(dtype) for v in (torch.randn(2, 3, 8), torch.randn(8), torch.randn(8)))
    check(lambda t, w, b: F.layer_norm(t, (8,), w, b), x, w, b, loops=True)
    check(lambda t: torch.ops.aten.native_layer_norm(t, [3, 8], None, None, 1e-5), x, loops=True)
    check(lambda t, w: F.layer_norm(t, (8,), w), x, w, loops=True)


def test_layer_norm_of_halves_with_full_precision_weights():
    check(lambda t, w, b: F.layer_norm(t, (8,), w, b), torch.randn(3, 8).bfloat16(), torch.randn(8), torch.randn(8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 4, 3)], ids=str)
def test_group_norm(shape, dtype):
    x, w, b = (v.to(dtype) for v in (torch.randn(shape), torch.randn(6), torch.randn(6)))
    check(lambda t, w, b: (F.group_norm(t, 3, w, b), F.group_norm(t, 2)), x, w, b, loops=True)


def test_group_norm_of_channels_last():
    x = torch.randn(2, 6, 4, 3).to(memory_format=torch.channels_last)
    check(lambda t, w: F.group_norm(t, 3, w), x, torch.randn(6), loops=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5)], ids=str)
def test_batch_norm(shape, dtype):
    x, w, b, mean = (v.to(dtype) for v in (torch.randn(shape), torch.randn(3), torch.randn(3), torch.randn(3)))
    var = torch.rand(3).to(dtype) + 0.5
    check(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), x, mean, var, w, b, loops=True)
    check(lambda x, m, v: F.batch_norm(x, m, v), x, mean, var, loops=True)
    check(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b, loops=True)
    legit = torch.ops.aten._native_batch_norm_legit_functional.default
    if dtype is not torch.bfloat16:
        check(lambda x, w, b, m, v: legit(x, w, b, m, v, True, 0.1, 1e-5), x, w, b, mean, var, loops=True)


def test_batch_norm_of_channels_last():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x, m, v: F.batch_norm(x, m, v), x, torch.randn(3), torch.rand(3) + 0.5, loops=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rms_norm(dtype):
    x, w = torch.randn(2, 3, 8).to(dtype), torch.randn(8).to(dtype)
    operator = torch.ops.aten._fused_rms_norm.default
    check_operator(operator, x, [8], w, 1e-6)
    check_operator(operator, x, [3, 8], None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dim, dtype):
    v, w = torch.randn(4, 3, 5).to(dtype), torch.randn(4, 3, 5).to(dtype)
    g = torch.rand([n if d == dim else 1 for d, n in enumerate(v.shape)]).to(dtype)
    check_operator(torch.ops.aten._weight_norm_interface.default, v, g, dim)
    norms = torch.ops.aten._weight_norm_interface(v, g, dim)[1]
    check_operator(torch.ops.aten._weight_norm_interface_backward.default, w, v, g, norms, dim)
