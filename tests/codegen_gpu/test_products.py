"""Products of float32 by kernels of their own, under Triton's interpreter against `float64`; and as machine code."""

from __future__ import annotations

import math

import pytest
import torch

import dovetail
from dovetail import products
from dovetail.ir.gpus import GPUS, Rates
from dovetail.ir.products import Product, ProductTiles
from dovetail.ir.template import template_of
from dovetail.products.choice import library, microseconds
from dovetail.runtime.gpu import templates as launches
from dovetail.runtime.gpu.loading import to_binary
from tests.codegen_gpu.interpreter import launched_template


class Launched:
    """What kernels have been given, in small tiles, `at_once` of them a wave; cuBLAS is so slow that all are chosen."""

    def __init__(self, monkeypatch):
        self.ran, self.given, self.at_once, self.tiles = [], [], 1, ProductTiles(16, 16, 4, 1, 16)
        monkeypatch.setattr(products, "rates", self.rates)
        monkeypatch.setattr(launches, "run", self.run)

    def rates(self, device):
        return Rates(1e-9, 1e-9, 1e9, self.at_once, 0.01, 0.0, {self.tiles: 1.0})

    def run(self, given, code, sizes):
        self.ran.append(template_of(code))
        self.given.append(given)
        return launched_template(given, code, sizes)


@pytest.fixture
def launched(monkeypatch):
    return Launched(monkeypatch)


def numbers(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


CASES = {
    "rows": (torch.mm, numbers(20, 32), numbers(32, 12)),
    "columns": (torch.mm, numbers(32, 20).t(), numbers(32, 24)),
    "both along the sum": (torch.mm, numbers(20, 32), numbers(12, 32).t()),
    "the smaller is split": (torch.mm, numbers(4, 32), numbers(64, 32).t()),
    "the smaller is split, columns": (torch.mm, numbers(4, 32), numbers(32, 64)),
    "a sum that ends in a tile": (torch.mm, numbers(20, 36), numbers(36, 12)),
    "columns that end in a tile": (torch.mm, numbers(36, 20).t(), numbers(36, 24)),
    "parts": (torch.mm, numbers(16, 128), numbers(128, 16)),
    "parts that end in a tile": (torch.mm, numbers(16, 180), numbers(180, 15)),
    "with a bias": (torch.addmm, numbers(12), numbers(20, 32), numbers(32, 12)),
    "with a bias, the smaller is split": (torch.addmm, numbers(64), numbers(4, 32), numbers(32, 64)),
    "matrices": (torch.bmm, numbers(3, 20, 32), numbers(3, 12, 32).mT),
    "matrices on their side": (torch.bmm, numbers(32, 3, 20).permute(1, 2, 0), numbers(3, 32, 24)),
    "rows that are not aligned": (torch.mm, numbers(20, 33)[:, :32], numbers(12, 33)[:, :32].t()),
    "a sum of an odd length": (torch.mm, numbers(20, 31), numbers(31, 12)),
    "a sum of an odd length, the smaller is split": (torch.mm, numbers(4, 31), numbers(31, 64)),
    "columns of an odd length": (torch.mm, numbers(32, 21).t(), numbers(32, 44)),
    "matrices of an odd length": (torch.bmm, numbers(3, 20, 31), numbers(3, 31, 12)),
    "one matrix for all": (torch.bmm, numbers(1, 20, 32).expand(3, -1, -1), numbers(3, 32, 24)),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name, launched):
    fn, *args = CASES[name]
    launched.at_once = 4 if "parts" in name else 1
    found, exact = dovetail.compile(fn, fullgraph=True)(*args), fn(*(a.double() for a in args))
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-5)
    (template,) = launched.ran
    assert template.results[0].sizes[1] == launched.at_once


def test_what_is_left_to_the_library(launched):
    x, y = numbers(20, 32), numbers(32, 12)
    wide = dovetail.compile(torch.mm, fullgraph=True)(x.double(), y.double())
    torch.testing.assert_close(wide, x.double() @ y.double())
    for settings in {"numerics": "eager"}, {"check_kernels": True}:
        with dovetail.config.patch(**settings):
            torch.testing.assert_close(dovetail.compile(torch.mm, fullgraph=True)(x, y), x @ y)
    assert not launched.ran


def test_numbers_that_are_not_finite(launched):
    """Or are no longer, rounded to TF32."""
    a, b = numbers(48, 32), numbers(32, 20)
    most = torch.finfo(torch.float32).max
    for k, number in enumerate((math.inf, -math.inf, math.nan, most, -most, 2.0**-140)):
        a[2 * k, k], b[k + 7, k] = number, number
    b[0] = 0.5
    b[0, 3] = 0.0  # beside an infinite number: NaN
    torch.testing.assert_close(dovetail.compile(torch.mm, fullgraph=True)(a, b), a @ b, equal_nan=True)
    assert len(launched.ran) == 1


def test_halves(launched):
    """The first is a TF32, both together are the number."""
    b = numbers(32, 8)
    b[0, :5] = torch.tensor([math.inf, math.nan, 3.4e38, -0.0, 1e-40])
    dovetail.compile(torch.mm, fullgraph=True)(numbers(20, 32), b)
    high, low = launched.given[0][1]
    assert not (high.view(torch.int32) & 0x1FFF).any()
    assert torch.equal((high + low).nan_to_num(7.0), b.t()[None].nan_to_num(7.0))
    usual = (high.abs() > 1e-30) & torch.isfinite(high)
    assert bool((low.abs() <= high.abs() * 2.0**-11)[usual].all())


def test_gradients(launched):
    x, w = numbers(20, 32).requires_grad_(), numbers(24, 32).requires_grad_()
    program = lambda x, w: torch.nn.functional.gelu(torch.nn.functional.linear(x, w)).square().sum()
    found = torch.autograd.grad(dovetail.compile(program, fullgraph=True)(x, w), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(program(x, w), (x, w)), rtol=1e-5, atol=1e-4)
    assert len(launched.ran) == 3


@pytest.mark.parametrize("name", ["rows", "columns", "parts that end in a tile", "with a bias"])
def test_machine_code(name, launched):
    fn, *args = CASES[name]
    launched.tiles = next(iter(GPUS[9, 0].float32.tiles))
    dovetail.compile(fn, fullgraph=True)(*args)
    assert to_binary(launches.kernel_of(launched.ran[0], torch.device("cpu")), 90).code.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "m, n, k, by_rows, library_us, kernel_us",
    [
        (4096, 4096, 4096, True, 2729, 1275 + 97), (8192, 768, 768, True, 245, 106 + 5),
        (8192, 768, 3072, True, 847, 376 + 12), (3152, 3072, 768, True, 388, 172 + 12),
        (1024, 1024, 1024, True, 61, 31 + 6), (50176, 384, 96, True, 119, 68 + 2),
    ],
)  # fmt: skip
def test_what_was_measured(m, n, k, by_rows, library_us, kernel_us):
    """On an H100: the kernel with what splits the second matrix, beside cuBLAS."""
    rate = GPUS[9, 0].float32
    ways = [
        Product(1, m, n, k, (k, 1), k, 0, True, False, False, False, parts, tiles)
        for tiles in rate.tiles
        for parts in range(1, 13)
    ]
    best = min(ways, key=lambda p: microseconds(p, rate))
    assert abs(microseconds(best, rate) / kernel_us - 1) < 0.3
    assert library(best, rate) < 1.05 * library_us
