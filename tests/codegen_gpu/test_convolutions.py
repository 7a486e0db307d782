"""Convolutions of each channel by itself: what they mean, and their GPU kernels under Triton's interpreter."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from dovetail.codegen.gpu import plan
from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group, LibraryCall, Store
from dovetail.ir.spec import verify
from dovetail.ops.lowering import convolutions
from dovetail.options import Options
from dovetail.schedule import schedule
from dovetail.schedule.fusion.cost import is_window
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule.test_meaning import lowered
from tests.traits import give_host

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    give_host(monkeypatch, depthwise=True, holds_rows=True)


#: Sizes of the image and the weight; stride, padding, dilation.
CASES = {
    "3x3": ((2, 6, 7, 5), (6, 1, 3, 3), [1, 1], [1, 1], [1, 1]),
    "no padding": ((2, 6, 7, 5), (6, 1, 3, 3), [1, 1], [0, 0], [1, 1]),
    "5x5 by twos": ((2, 6, 9, 8), (6, 1, 5, 5), [2, 2], [2, 2], [1, 1]),
    "by threes, two wide": ((1, 4, 9, 8), (4, 1, 2, 3), [3, 2], [1, 0], [1, 1]),
    "steps longer than the weight": ((1, 4, 9, 8), (4, 1, 2, 2), [3, 3], [0, 0], [1, 1]),
    "spread": ((2, 6, 9, 9), (6, 1, 3, 3), [1, 1], [2, 2], [2, 2]),
    "padding beyond the weight": ((1, 3, 4, 4), (3, 1, 3, 3), [1, 1], [4, 3], [1, 1]),
    "even": ((1, 3, 6, 6), (3, 1, 4, 2), [1, 2], [2, 1], [1, 1]),
    "lines": ((2, 5, 11), (5, 1, 4), [1], [3], [1]),
    "volumes": ((1, 3, 4, 5, 4), (3, 1, 2, 3, 2), [1, 2, 1], [1, 1, 0], [1, 1, 1]),
    "a pixel": ((2, 6, 1, 1), (6, 1, 3, 3), [1, 1], [1, 1], [1, 1]),
    "a column of results": ((2, 6, 5, 3), (6, 1, 3, 3), [1, 1], [0, 0], [1, 1]),
}  # fmt: skip


def _given(case, last, dtype):
    sizes, weights, *how = case
    torch.manual_seed(0)
    x, w = torch.randn(sizes), torch.randn(weights)
    if last and len(sizes) == 4:
        x = x.to(memory_format=torch.channels_last)
    return x.to(dtype), w.to(dtype), torch.randn(sizes[1]).to(dtype), how


def _wide(fn, *args):
    """In float64, where there is nothing to round."""
    return fn(*(a.double() if isinstance(a, torch.Tensor) else a for a in args))


def _run(fn, args, monkeypatch, calls=0):
    before = lowered(fn, *args)
    program = schedule(before, Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    program = program.with_items(tuple(itertools.chain.from_iterable(items)))
    verify(program)
    assert sum(isinstance(item, LibraryCall) for item in program.items) == calls
    found = evaluation.evaluate(before, args), evaluation.evaluate(program, args)
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    return *found, _Machine(program, args).run()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("last", "dtype", "small"), [
    (False, torch.float32, False), (True, torch.float32, True), (True, torch.bfloat16, False),
])
def test_meaning(name, last, dtype, small, monkeypatch):
    _compare(CASES[name], last, dtype, small, monkeypatch)


@pytest.mark.parametrize("seed", range(6))
def test_random_ones(seed, monkeypatch):
    chosen = random.Random(seed)
    rank = chosen.choice([1, 2, 2, 2, 3])
    taps = [chosen.randint(1, 3 if rank > 2 else 6) for _ in range(rank)]
    stride, padding = ([chosen.randint(least, 3) for _ in taps] for least in (1, 0))
    dilation = [chosen.randint(1, 3) if step == 1 else 1 for step in stride]
    reach = [d * (t - 1) + 1 for d, t in zip(dilation, taps, strict=True)]
    sizes = [max(1, r - 2 * p) + chosen.randint(0, 5) for r, p in zip(reach, padding, strict=True)]
    batch, channels = chosen.randint(1, 3), chosen.randint(2, 9)
    case = (batch, channels, *sizes), (channels, 1, *taps), stride, padding, dilation
    _compare(case, chosen.random() < 0.6, torch.float32, chosen.random() < 0.5, monkeypatch)


def _compare(case, last, dtype, small, monkeypatch):
    if small:
        monkeypatch.setattr(plan, "FLAT", 32)
        monkeypatch.setattr(plan, "WEIGHTS", 9)
    monkeypatch.setattr(convolutions, "LIBRARY", 0 if small else 25)
    x, w, bias, (stride, padding, dilation) = _given(case, last, dtype)
    calls = int(w[0].numel() <= convolutions.LIBRARY or dtype is not torch.float32)  # for the weight's gradient
    none = [0] * len(stride)

    def forward(x, w, bias):
        return aten.convolution(x, w, bias, stride, padding, dilation, False, none, x.shape[1])

    want = _wide(forward, x, w, bias)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for (got,) in _run(forward, (x, w, bias), monkeypatch):
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
        assert got.stride() == forward(x, w, bias).stride()
    gradient = torch.randn(want.shape).to(dtype)
    if last and gradient.dim() == 4:
        gradient = gradient.to(memory_format=torch.channels_last)

    def backward(gradient, x, w):
        sizes = [x.shape[1]]
        return aten.convolution_backward(
            gradient, x, w, sizes, stride, padding, dilation, False, none, x.shape[1], [True] * 3
        )

    wants = _wide(backward, gradient, x, w)
    for results in _run(backward, (gradient, x, w), monkeypatch, calls):
        for got, want in zip(results, wants, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance * want.abs().max().item())


def _groups(fn, *args):
    return [item for item in schedule(lowered(fn, *args), Options()).items if isinstance(item, Group)]


def _convolved(x, w, padding=1):
    return aten.convolution(x, w, None, [1, 1], [padding] * 2, [1, 1], False, [0, 0], x.shape[1])


def test_what_follows_joins_where_it_has_no_rows():
    x, w, _, _ = _given(CASES["3x3"], True, torch.float32)
    assert len(_groups(lambda x, w: torch.nn.functional.silu(_convolved(x, w) * 2), x, w)) == 2  # the weights, and this

    def normed(x, w):
        return torch.nn.functional.layer_norm(_convolved(x, w).permute(0, 2, 3, 1), (6,))

    stores = [(g, s) for g in _groups(normed, x, w) for s in g.statements() if isinstance(s, Store)]
    (window,) = [g for g, s in stores if is_window(s.value)]
    assert not any(loop.inner for loop in window.loops)


def test_nothing_dear_is_computed_for_each_tap():
    x, w, _, _ = _given(CASES["3x3"], True, torch.float32)
    assert len(_groups(lambda x, w: _convolved(torch.nn.functional.silu(x), w), x, w)) == 3
    assert len(_groups(lambda x, w: _convolved(-x, w), x, w)) == 2


@pytest.mark.parametrize(("sizes", "weights", "groups", "stride", "dilation"), [
    ((2, 6, 7, 7), (12, 1, 3, 3), 6, 1, 1),  # two results a channel
    ((2, 6, 7, 7), (6, 3, 3, 3), 2, 1, 1),  # channels in groups
    ((2, 1, 7, 7), (1, 1, 3, 3), 1, 1, 1),  # one channel
    ((2, 6, 17, 17), (6, 1, 3, 3), 6, 2, 2),
    ((2, 6, 17, 17), (6, 1, 9, 9), 6, 1, 1),  # too many taps
])
def test_left_to_the_library(sizes, weights, groups, stride, dilation):
    fn = lambda x, w: aten.convolution(x, w, None, [stride] * 2, [0, 0], [dilation] * 2, False, [0, 0], groups)
    program = lowered(fn, torch.randn(sizes), torch.randn(weights))
    assert sum(isinstance(item, LibraryCall) for item in program.items) == 1
