"""Products of `float32` drawn at random, against `float64`; and convolutions that are tried out, on a CUDA device."""

from __future__ import annotations

import random

import pytest
import torch

import dovetail
from dovetail import products
from dovetail.ir.gpus import gpu
from dovetail.ir.trials import AnyTensor, TimedCall
from dovetail.runtime.gpu import trials

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DRAWS = 8


def matrix(rows, columns, kind):
    """Contiguous, on its side, or a part of a wider one."""
    if kind == "turned":
        return torch.randn(columns, rows, device="cuda").t()
    if kind == "part":
        return torch.randn(rows, columns + 7, device="cuda")[:, 3:-4]
    return torch.randn(rows, columns, device="cuda")


def drawn(draw):
    m, n = (draw.choice([draw.randrange(8, 600), draw.randrange(300, 4000), 128 * draw.randrange(1, 30)]) for _ in "mn")
    k = draw.choice([draw.randrange(30, 3000), 64 * draw.randrange(1, 60), draw.randrange(2000, 9000)])
    kinds = "plain", "turned", "part"
    a, b, c = matrix(m, k, draw.choice(kinds)), matrix(k, n, draw.choice(kinds)), torch.randn(n, device="cuda")
    if draw.random() < 0.2:
        a[draw.randrange(m), draw.randrange(k)] = float("inf")
    if draw.random() < 0.2:
        return torch.bmm, a[:256, :512].expand(3, -1, -1), b[:512].repeat(3, 1, 1)
    fns = (lambda a, b, c: a @ b, lambda a, b, c: torch.nn.functional.gelu(torch.addmm(c, a, b)))
    return draw.choice(fns), a, b, c


@pytest.mark.parametrize("seed", range(12))
def test_drawn_products(seed, monkeypatch):
    """No farther from the exact result than twice as far as cuBLAS's, and not finite where that is not."""
    written, made = products._written, []
    monkeypatch.setattr(products, "_written", lambda *args: made.append(args) or written(*args))
    torch.manual_seed(seed)
    draw = random.Random(seed)
    for _ in range(DRAWS):
        fn, *args = drawn(draw)
        dovetail.reset()
        got, eager = dovetail.compile(fn, dynamic=False)(*args), fn(*args)
        exact = fn(*(t.double() for t in args))
        finite = exact.isfinite()
        errors = [float(((t - exact)[finite]).abs().max() / exact[finite].abs().max()) for t in (got, eager)]
        assert errors[0] < 2 * errors[1] + 1e-6
        assert torch.equal(got.isnan(), eager.isnan()) and torch.equal(got.isinf(), eager.isinf())
    assert made or gpu(torch.device("cuda")).float32 is None


def test_calls_are_timed_once(monkeypatch, tmp_path):
    """What was found is on disk afterwards, and random numbers are where they were."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    image, weight = AnyTensor((8, 32, 56, 56), (100352, 3136, 56, 1), torch.float32), AnyTensor(
        (32, 32, 3, 3), (288, 9, 3, 1), torch.float32)  # fmt: skip
    settings = (1, 1), (1, 1), (1, 1), False, (0, 0), 1
    call = TimedCall(torch.ops.aten.convolution.default, (image, weight, None, *settings))
    before, device = torch.cuda.get_rng_state(), torch.device("cuda", torch.cuda.current_device())
    (first,) = trials.microseconds([call], device)
    assert 1 < first < 10_000 and torch.equal(torch.cuda.get_rng_state(), before)
    monkeypatch.setattr(trials, "_launched", None)
    assert trials.microseconds([call], device) == [first]
