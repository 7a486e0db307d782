"""Random numbers drawn in kernels: what a GPU does, here by kernels for the CPU."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail import pipeline
from dovetail.capture.driver import capture
from dovetail.normalize import normalize
from dovetail.normalize.passes import random_numbers
from dovetail.normalize.text import aten_text
from dovetail.options import Options
from tests.autograd.test_random import DRAWS
from tests.traits import give_host


@pytest.fixture(autouse=True)
def _drawn_in_kernels(monkeypatch):
    give_host(monkeypatch, draws=True)
    monkeypatch.setattr(random_numbers, "FEW", 1)


def _graph(fn, *args):
    with torch.no_grad():
        captured = capture(fn, args, {}, Options())
        return normalize(captured.graph, [given.fake for given in captured.inputs], Options())


def test_a_dropout_becomes_arithmetic():
    text = aten_text(_graph(lambda x: torch.native_dropout(x, 0.25, True)[0], torch.zeros(3, 4)))
    assert text == """\
graph(%x: f32[3, 4])
  %randint_low = aten.randint.low(-9223372036854775808, 9223372036854775807, [11], dtype=i64, device=cpu) i64[11]
  %draw_default = dovetail.draw(%randint_low, 9, [3, 4], [4, 1], 'uniform') f32[3, 4]
  %lt_scalar = aten.lt.Scalar(%draw_default, 0.75)                     bool[3, 4]
  %mul_tensor = aten.mul.Tensor(%x, %lt_scalar)                        f32[3, 4]
  %mul_tensor_1 = aten.mul.Tensor(%mul_tensor, 1.3333333333333333)     f32[3, 4]
  return (%mul_tensor_1)
"""


@pytest.mark.parametrize("noise, drawn", [(1, False), (8, True)])
def test_what_draws_little_draws_as_eager(noise, drawn, monkeypatch):
    monkeypatch.setattr(random_numbers, "FEW", 4)

    def fn(x):
        return x * torch.empty(4, 1).bernoulli_(0.5) + torch.rand(noise)

    x = torch.randn(4, 8)
    assert ("dovetail.draw" in aten_text(_graph(fn, x))) is drawn
    torch.manual_seed(0)
    mine = dovetail.compile(fn)(x)
    torch.manual_seed(0)
    assert torch.equal(mine, fn(x)) is not drawn


def _run(fn):
    dovetail.reset()
    compiled, found = dovetail.compile(fn), []
    torch.manual_seed(3)
    for _ in range(2):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        results = compiled(x)
        results = results if isinstance(results, tuple) else (results,)
        differentiable = [r for r in results if r.requires_grad]
        sum((r * r).sum() for r in differentiable).backward()
        found += [*(r.detach() for r in results), x.grad, torch.get_rng_state()]
    return found


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_with_and_without_kernels(name, monkeypatch):
    """Kernels of forward and backward halves give what their operators do, from the same seed."""
    found = _run(DRAWS[name])
    monkeypatch.setattr(pipeline, "build", pipeline._operators)
    for ours, plain in zip(found, _run(DRAWS[name]), strict=True):
        torch.testing.assert_close(ours, plain)


def test_operators_run_one_by_one_are_eagers():
    compiled = dovetail.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), backend="aot_eager")
    torch.manual_seed(0)
    got = compiled(torch.ones(9))
    torch.manual_seed(0)
    assert torch.equal(got, F.dropout(torch.ones(9), 0.5) + torch.rand(9))


N = 1 << 17
#: Functions of a tensor, with mean, variance and range of what they draw for zeros.
DISTRIBUTIONS = {
    "rand": (lambda x: torch.rand_like(x), 0.5, 1 / 12, 0, 1 - 2**-24),
    "double": (lambda x: torch.rand_like(x, dtype=torch.float64), 0.5, 1 / 12, 0, 1 - 2**-53),
    "bfloat16": (lambda x: torch.rand_like(x, dtype=torch.bfloat16).float(), 0.5, 1 / 12, 0, 1 - 2**-8),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-3, 1), -1, 16 / 12, -3, 1),
    "randn": (lambda x: torch.randn_like(x), 0, 1, -7, 7),
    "double normal": (lambda x: torch.randn_like(x, dtype=torch.float64), 0, 1, -9, 9),
    "normal": (lambda x: torch.normal(x + 2, 0.5), 2, 0.25, -2, 6),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.25), 0.25, 0.25 * 0.75, 0, 1),
    "number": (lambda x: torch.empty_like(x).bernoulli_(0.9), 0.9, 0.09, 0, 1),
    "randint": (lambda x: torch.randint_like(x, -2, 5), 1, 4, -2, 4),
    "large": (lambda x: torch.randint(0, 2**40, x.shape) / 2**40, 0.5, 1 / 12, 0, 1),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.25, 1e-9, 20),
    "dropout": (lambda x: torch.native_dropout(x + 1, 0.2, True)[0], 1, 0.25, 0, 1.25),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name):
    fn, mean, variance, low, high = DISTRIBUTIONS[name]
    torch.manual_seed(1)
    compiled = dovetail.compile(fn)
    first, second = compiled(torch.zeros(N)), compiled(torch.zeros(N))
    assert not torch.equal(first, second)
    for drawn in (first.double(), second.double()):
        assert low <= drawn.min() and drawn.max() <= high
        assert abs(drawn.mean() - mean) < 6 * math.sqrt(variance / N)
        assert abs(drawn.var() / variance - 1) < 0.05
        following = ((drawn[1:] - mean) * (drawn[:-1] - mean)).mean() / variance
        assert abs(following) < 6 / math.sqrt(N)
    assert abs(((first - mean) * (second - mean)).mean() / variance) < 6 / math.sqrt(N)


def test_several_draws_differ():
    found = dovetail.compile(lambda: (torch.rand(100), torch.rand(100), torch.randn(100)))()
    assert not torch.equal(found[0], found[1])


def test_an_option_gives_eagers():
    compiled = dovetail.compile(lambda x: torch.rand_like(x) * F.dropout(x), options={"fallback_random": True})
    torch.manual_seed(0)
    got = compiled(torch.ones(9))
    torch.manual_seed(0)
    assert torch.equal(got, torch.rand(9) * F.dropout(torch.ones(9)))


def test_a_mask_is_the_same_in_both_halves():
    x = torch.ones(1000, requires_grad=True)
    y = dovetail.compile(lambda x: torch.native_dropout(x.exp(), 0.5, True)[0].log1p())(x)
    y.sum().backward()
    assert torch.equal(y != 0, x.grad != 0) and 300 < (y != 0).sum() < 700


def test_a_backward_pass_keeps_seeds_and_no_masks():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        x = torch.ones(1000, requires_grad=True)
        dovetail.compile(lambda x: torch.native_dropout(x.sin(), 0.5, True)[0])(x)
    assert sorted(t.numel() for t in saved) == [11, 1000]


def test_a_checkpoint_around_what_is_compiled():
    inner = dovetail.compile(lambda x: torch.native_dropout(x.exp(), 0.5, True)[0])
    x = torch.ones(100, requires_grad=True)
    y = checkpoint(inner, x, use_reentrant=False)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_checkpoints_inside_of_what_is_compiled():
    """Seeds are kept for what runs again, which draws the same."""

    def dropped(x):
        return F.dropout(x.exp(), 0.5)

    def fn(x):
        for _ in range(2):
            x = checkpoint(dropped, x, use_reentrant=False) * 1e-3
        return x

    saved = []
    x = torch.zeros(1000, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = dovetail.compile(fn, fullgraph=True)(x)
    assert sorted(t.numel() for t in saved) == [13, 1000, 1000]
    y.sum().backward()
    assert 0.15 < ((x.grad != 0) & (y != 0)).float().mean() < 0.35 and not ((x.grad != 0) & (y == 0)).any()


def test_any_size():
    compiled = dovetail.compile(lambda x: torch.native_dropout(x, 0.5, True)[0] * 2, dynamic=True)
    for n in (5, 1000, 1, 0, 31):
        y = compiled(torch.ones(n))
        assert set(y.tolist()) <= {0.0, 4.0} and len(y) == n


def test_layouts_are_eagers():
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    drawing = [torch.rand_like, lambda x: torch.native_dropout(x, 0.5, True)[1], lambda x: torch.randn_like(x)]
    for fn in drawing:
        for backend in ("dovetail", "aot_eager"):
            assert dovetail.compile(fn, backend=backend)(x).stride() == fn(x).stride()


def test_gradients_of_gradients_are_refused():
    x = torch.ones(10, requires_grad=True)
    y = dovetail.compile(lambda x: torch.native_dropout(x**3, 0.5, True)[0])(x)
    with pytest.raises(RuntimeError, match=r"fallback_random.*cannot be differentiated twice"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
