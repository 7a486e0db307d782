"""Products whose rows are not aligned, padded: results and layouts, on the CPU as if it gained by it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.ir.gpus import GPUS, HalfRates
from dovetail.products import aligned
from dovetail.products.choice import misaligned, padded_us


@pytest.fixture
def padded(monkeypatch):
    """What has been padded, by how many rows, elements of the sum and columns."""
    given, missing_of = [], aligned._missing
    monkeypatch.setattr(aligned, "half_rates", lambda device: HalfRates(1e9, {2: 1e-9, 4: 1e-9, 8: 1e-9}, 1e9, 0.0))
    monkeypatch.setattr(aligned, "_missing", lambda *args: given.append(missing_of(*args)) or given[-1])
    return given


def numbers(*sizes, dtype=torch.bfloat16):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


CASES = {
    "columns": (torch.mm, numbers(6, 16), numbers(9, 16).t()),
    "columns, right as it is": (torch.mm, numbers(6, 16), numbers(16, 9)),
    "the sum": (torch.mm, numbers(6, 9), numbers(9, 16)),
    "the sum, both along it": (torch.mm, numbers(6, 9), numbers(16, 9).t()),
    "rows": (torch.mm, numbers(24, 9).t(), numbers(24, 16)),
    "all": (torch.mm, numbers(10, 9).t(), numbers(10, 7)),
    "a part of a wider one": (torch.mm, numbers(6, 20)[:, 3:12], numbers(9, 16)),
    "a bias": (torch.addmm, numbers(9), numbers(6, 16), numbers(9, 16).t()),
    "matrices": (torch.bmm, numbers(3, 6, 9), numbers(3, 9, 7)),
    "matrices on their side": (torch.bmm, numbers(3, 9, 6).mT, numbers(3, 7, 9).mT),
    "one matrix for all": (torch.bmm, numbers(1, 6, 9).expand(3, -1, -1), numbers(3, 9, 7)),
    "float16": (torch.mm, numbers(6, 9, dtype=torch.float16), numbers(9, 7, dtype=torch.float16)),
    "infinite numbers": (torch.mm, numbers(6, 9) / 0.0, numbers(9, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name, padded):
    fn, *args = CASES[name]
    eager, found = fn(*args), dovetail.compile(fn, fullgraph=True)(*args)
    assert found.stride() == eager.stride()
    torch.testing.assert_close(found, eager, equal_nan=True)
    assert len(padded) == 1 and any(padded[0])


@pytest.mark.parametrize(
    "args, missing",
    [
        ((numbers(7, 16), numbers(9, 16).t()), (0, 0, 7)), ((numbers(7, 9), numbers(9, 16)), (0, 7, 0)),
        ((numbers(9, 16).t(), numbers(9, 8)), None), ((numbers(16, 7).t(), numbers(16, 8)), (1, 0, 0)),
        ((numbers(7, 16), numbers(16, 8)), None),
    ],
)  # fmt: skip
def test_what_is_contiguous_is_padded(args, missing, padded):
    """Other sizes only say how many rows there are."""
    dovetail.compile(torch.mm, fullgraph=True)(*args)
    assert padded == [missing]


def loss(x, w, target):
    logits = F.linear(x, w)
    return F.cross_entropy(logits.flatten(0, 1).float(), target), logits


def test_a_head_of_a_language_model(padded):
    """Its gradient is stored padded by what computes it, once, and both products read it."""
    x, w = (numbers(2, 8, 16).requires_grad_(), numbers(51, 16).requires_grad_())
    target = torch.arange(16) * 3
    gradients, compiled = [], dovetail.compile(loss, fullgraph=True)
    eager, found = loss(x, w, target), compiled(x, w, target)
    assert found[1].stride() == eager[1].stride()
    torch.testing.assert_close(found, eager, rtol=1e-2, atol=1e-2)
    for fn in (loss, compiled):
        gradients.append(torch.autograd.grad(fn(x, w, target)[0], (x, w)))
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-3)
    assert [missing for missing in padded if missing] == [(0, 0, 5), (5, 0, 0), (0, 5, 0)]


def test_what_is_left_as_it_is(padded):
    for settings in {"numerics": "eager"}, {"check_kernels": True}:
        with dovetail.config.patch(**settings):
            dovetail.compile(torch.mm, fullgraph=True)(numbers(6, 9), numbers(9, 7))
    dovetail.compile(torch.mm, fullgraph=True)(numbers(6, 9).float(), numbers(9, 7).float())
    dovetail.compile(torch.addmm, fullgraph=True)(numbers(1), numbers(6, 9), numbers(9, 7))
    dovetail.compile(torch.mm, fullgraph=True, dynamic=True)(numbers(6, 9), numbers(9, 7))
    assert not any(padded)


@pytest.mark.parametrize(
    "sizes, along, plain_us, padded_alone_us",
    [
        ((8192, 768, 50257), 2, 6713, 929), ((8192, 50257, 768), 1, 4619, 844), ((50257, 8192, 768), 0, 4453, 832),
        ((2048, 768, 30522), 2, 498, 169), ((2048, 30522, 768), 1, 469, 143), ((1024, 512, 32001), 2, 408, 80),
        ((8192, 768, 50260), 2, 2709, 972), ((8192, 50258, 768), 1, 2646, 899), ((51868, 4096, 1024), 0, 1868, 584),
        ((4096, 1024, 51865), 2, 4599, 587), ((512, 768, 50257), 2, 484, 80), ((8192, 768, 1001), 2, 161, 36),
    ],
)  # fmt: skip
def test_what_was_measured(sizes, along, plain_us, padded_alone_us):
    """On an H100: what is padded costs less than it is thought to, and what is not costs more."""
    rate = GPUS[9, 0].half
    missing = tuple(misaligned(size) if axis == along else 0 for axis, size in enumerate(sizes))
    plain, padded = padded_us(1, sizes, missing, rate)
    assert 0.5 < plain / plain_us < 1.3
    assert padded_alone_us / 1.5 < padded < plain_us
