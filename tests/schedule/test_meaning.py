"""Scheduling changes how much is in one kernel, never what is computed: evaluated before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dovetail.capture.driver import capture
from dovetail.ir import devices
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Group, Program
from dovetail.ir.spec import verify
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.options import Options
from dovetail.schedule import schedule
from dovetail.schedule.fusion.inline import inline

A = torch.linspace(-2, 2, 6 * 8).reshape(6, 8)
B = torch.linspace(-1, 3, 6 * 8).reshape(6, 8)
ROW = torch.linspace(0.5, 1.5, 8)
IMAGE = torch.linspace(-1, 1, 2 * 4 * 3 * 3).reshape(2, 4, 3, 3)
CHANNELS_LAST = IMAGE.contiguous(memory_format=torch.channels_last)
WIDE = torch.linspace(-3, 3, 80 * 16).reshape(80, 16)
TALL = torch.linspace(-3, 3, 4 * 20 * 32).reshape(4, 20, 32)
HALF = WIDE.to(torch.bfloat16)
PRIME = torch.linspace(-3, 3, 12 * 37).reshape(12, 37)
HIDDEN = torch.where(torch.arange(37) < 3 * torch.arange(12)[:, None], float("-inf"), PRIME)
LONG = torch.linspace(-3, 3, 3 * 96 * 64).reshape(3, 96, 64)
IDS = torch.tensor([[3, 0, 5], [1, 1, 2]])


def lowered(fn, *args) -> Program:
    with torch.no_grad():
        captured = capture(fn, args, {}, Options())
        graph = normalize(captured.graph, [given.fake for given in captured.inputs], Options())
        return lower(graph, Options())


def groups(program: Program) -> int:
    return sum(isinstance(item, Group) for item in program.items)


def _twice(product, other):
    """Read by a sum over columns, and again by what follows from the sum."""
    return product - (product * other).sum(0) * other


def _chosen(x, y):
    """As the gradient of a cross entropy: what is chosen in each row, if anything, less its share."""
    one = torch.where((torch.arange(37) == y[:, None]) & (y[:, None] != 4), x[:, :1] * 2, 0.0)
    return one - x.exp() * one.sum(-1, keepdim=True)


def _states(x, y):
    """Of a state space model: each position's product with a vector."""
    state, found = torch.zeros(4, 20), []
    for k in range(0, 32, 4):
        state = x[:, :, k] * state + y[:, :, k]
        found.append((state[:, None] @ y[:, :, k, None])[:, 0, 0])
    return torch.stack(found, 1)


CASES = {
    # function, arguments, groups after scheduling
    "chain": (lambda x: ((x + 1) * 2).sin().exp(), (A,), 1),
    "diamond": (lambda x: x.sin() + x.sin().cos(), (A,), 1),
    "two outputs": (lambda x: ((y := x.sin()), y.cos()), (A,), 1),
    "broadcast": (lambda x, r: x * r + x, (A, ROW), 1),
    "row sum": (lambda x: (x.exp()).sum(-1), (A,), 1),
    "states": (_states, (TALL, TALL.cos()), 2),
    "softmax": (lambda x: torch.softmax(x + 1, -1), (WIDE,), 1),
    "log softmax": (lambda x: torch.log_softmax(x * 2, -1), (WIDE,), 1),
    "softmax over rows of rows": (lambda x: torch.softmax(x * 2, -1) + x, (TALL,), 1),
    "softmax over columns": (lambda x: torch.softmax(x, 0), (WIDE,), None),
    "layer norm": (lambda x, r: F.layer_norm(x.tanh(), (8,), r, r), (A, ROW), None),
    "residual layer norm": (lambda x, y: (x + y, F.layer_norm(x + y, (16,))), (WIDE, WIDE * 2), 1),
    "norm then softmax": (lambda x: torch.softmax(F.layer_norm(F.gelu(x), (16,)), -1), (WIDE,), 1),
    "reshaped between": (lambda x: (x.reshape(80, 32) + 1).reshape(4, 20, 32).sum(-1), (TALL,), None),
    "transposed": (lambda x: x.t().exp() + 1, (A,), 1),
    "mean and variance": (lambda x: (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True).sqrt(), (WIDE,), 1),
    "full reduction": (lambda x: (x * x).sum(), (WIDE,), 1),
    "column sum": (lambda x: x.exp().sum(0), (WIDE,), 1),
    "batch norm": (lambda x, m, v: F.relu(F.batch_norm(x, m, v)), (IMAGE, ROW[:4], ROW[4:]), None),
    "cat": (lambda x, y: torch.cat([x + 1, y * 3], 1) * 2, (A, B), 1),
    "cat of many": (lambda x, y: torch.cat([x, y, x + 1, y + 1, x * y], 1) * 2, (A, B), None),
    "pad": (lambda x: F.pad(x.exp(), (1, 2)) + 1, (A,), 1),
    "slice": (lambda x: x[1:5, 2:].sin() + x[1:5, :6], (A,), 1),
    "embedding": (lambda i, w: F.embedding(i, w).sin(), (IDS, A), None),
    "gather": (lambda i, x: x[i].sum(-1), (IDS, A), None),
    "gather behind": (lambda i, x: x.gather(1, (i[0] - 1)[:, None]), (IDS + 1, A[:3]), None),
    "matmul between": (lambda x, y: F.relu((x + 1) @ y.t() * 2).sum(-1), (A, B), None),
    "half": (lambda x: torch.softmax(x * 2 + 1, -1), (HALF,), 1),
    "rotate": (lambda x: torch.cat([-x[..., 8:], x[..., :8]], -1) * x, (WIDE,), 1),
    "causal mask": (lambda x: x.masked_fill(torch.arange(16) > torch.arange(len(x))[:, None], 0.0), (WIDE,), 1),
    "mutation": (lambda x: x.clone().add_(1).mul_(2), (A,), 1),
    "max with indices": (lambda x: x.exp().max(-1), (WIDE,), None),
    "batch norm in training": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,), None),
    "channels last": (lambda x: F.batch_norm(x, None, None, training=True), (CHANNELS_LAST,), None),
    "after sums of columns": (lambda x: ((s := x.sum((0, 2, 3))) * 2, s.exp() + 1), (CHANNELS_LAST,), 1),
    "columns less a mean of each row": (lambda x: ((x - x.mean(-1, keepdim=True)) * x).sum((0, 1)), (TALL,), None),
    "columns of many rows": (lambda x, m: ((x - m) * x).sum((0, 1)), (LONG, LONG[..., :1].sin()), 1),
    "variances of prime rows": (lambda x: torch.var_mean(x + 100, -1), (PRIME,), None),
    "softmax of prime rows": (lambda x: torch.softmax(x * 2, -1), (PRIME,), None),
    "hidden elements": (lambda x: torch.log_softmax(x, -1).exp(), (HIDDEN,), None),
    "nothing but hidden elements": (lambda x: torch.logsumexp(x - float("inf"), -1), (PRIME,), None),
    "readers have an operand": (lambda x, y: _twice(x * y, x), (WIDE, WIDE + 1), 2),
    "readers have neither": (lambda x, y: _twice(x * y, x.new_ones(len(x), 16)), (WIDE, WIDE + 1), 3),
    "one of many": (lambda x, y: _chosen(x, y), (PRIME, torch.arange(-3, 9) * 4), 1),
    "scalar chain": (lambda x: (x.sum() + 1).sin() * x, (A,), None),
}


@pytest.mark.parametrize("name", CASES)
def test_meaning(name):
    fn, args, expected = CASES[name]
    before = lowered(fn, *args)
    after = schedule(before, Options())
    verify(after)
    want, got = evaluate(before, args), evaluate(after, args)
    for w, g in zip(want, got, strict=True):
        tolerance = 2e-2 if w.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)
    assert expected is None or groups(after) == expected


def test_eager_rounding_is_kept_on_request():
    before = lowered(lambda x: (x * 3 + 1) * 3, HALF)
    exact = schedule(before, Options(numerics="eager"))
    torch.testing.assert_close(evaluate(exact, (HALF,)), evaluate(before, (HALF,)), rtol=0, atol=0)
    assert groups(exact) == 1


def test_sums_behind_one_row_are_apart():
    """The columns of the last product are not elements of the row: a softmax's sum is of all of it."""
    attend = lambda x, k, v: torch.softmax(x @ k.t(), -1) @ v
    args = torch.randn(1, 8), torch.randn(5, 8), torch.randn(5, 3)
    program = schedule(lowered(attend, *args), Options())
    torch.testing.assert_close(evaluate(program, args)[0], attend(*args))


def test_a_norm_of_one_row_is_one_group():
    """Its mean is a single element, which no range of the row's leads to."""
    norm = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
    for rows in (1, 2):
        assert groups(schedule(lowered(norm, torch.randn(rows, 2048), torch.randn(2048)), Options())) == 1


def test_rows_of_which_one_scales_the_other_are_one_group():
    """The second is joined by what reads both, and takes in the first."""
    gated = lambda x, y: F.silu(x.sum(-1)) * y.sum(-1)
    program = schedule(lowered(gated, *torch.randn(2, 64, 96)), Options())
    assert groups(program) == 1
    assert groups(schedule(lowered(lambda x, y: gated(x, y) + x.sum(-1), *torch.randn(2, 64, 96)), Options())) == 1


def test_what_a_device_computes_again(monkeypatch):
    """Its operands are read anyway, so that keeping it costs memory traffic alone."""

    def gradient(x, g):
        inner = torch.where(x * 2 <= 0, 0.0, g * torch.sigmoid(x) * (1 + x))
        return torch.addcmul(inner, inner.sum((0, 2, 3), keepdim=True), x)

    args = IMAGE, IMAGE.cos()
    program, kept = lowered(gradient, *args), []
    for price in (0, 40):
        monkeypatch.setitem(devices.TRAITS, "cpu", replace(devices.TRAITS["cpu"], recomputes=price))
        torch.testing.assert_close(evaluate(schedule(program, Options()), args), evaluate(program, args))
        kept.append(groups(inline(program, False)))
    assert kept == [3, 2]


def test_what_is_made_of_one_tensor(monkeypatch):
    """It is computed where it is read, conversions included."""

    def gradients(x, g, scale, shift):
        found = x * scale[:, None, None] + shift[:, None, None]
        inner = torch.where(found <= 0, 0.0, g)
        return found.relu(), (inner.float() * x).sum((0, 2, 3))

    few = torch.randn(IMAGE.shape[1]).bfloat16()
    args = IMAGE.bfloat16(), IMAGE.cos().bfloat16(), few, few.cos()
    program, kept = lowered(gradients, *args), []
    for price in (5, 10):
        monkeypatch.setitem(devices.TRAITS, "cpu", replace(devices.TRAITS["cpu"], of_one=price, recomputes=40))
        found, want = (evaluate(p, args) for p in (schedule(program, Options()), program))
        torch.testing.assert_close(found, want, rtol=2e-2, atol=2e-2)
        kept.append(groups(inline(program, False)))
    assert kept[1] < kept[0]


def test_what_takes_less_time_than_memory(monkeypatch):
    """A function that two readers want is computed twice where that is faster than to write it."""
    program = lowered(lambda x: (F.silu(x).mean((2, 3)), F.silu(x) * 2 + x, F.silu(x).amax(1)), IMAGE)
    kept = []
    for operations in (0, 12):
        monkeypatch.setitem(devices.TRAITS, "cpu", replace(devices.TRAITS["cpu"], operations=operations))
        found, want = (evaluate(p, (IMAGE,)) for p in (schedule(program, Options()), program))
        torch.testing.assert_close(found, want)
        kept.append(groups(inline(program, False)))
    assert kept[1] < kept[0]
