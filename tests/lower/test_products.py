"""Matrix products go to the library that is faster on the processor, and mean the same."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.ops import products
from tests.schedule.test_meaning import lowered

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")


@pytest.fixture
def slow_mkl(monkeypatch):
    monkeypatch.setattr(products, "faster_by_onednn", lambda: True)
    monkeypatch.setattr(products, "LARGE", 0)


def operators(fn, *args) -> list[str]:
    return [str(item.operator) for item in lowered(fn, *args).items if hasattr(item, "operator")]


@needs_onednn
def test_which_products_go_to_onednn(monkeypatch):
    monkeypatch.setattr(products, "faster_by_onednn", lambda: True)
    small, large = torch.ones(32, 32), torch.ones(512, 512)
    assert operators(torch.mm, small, small) == ["aten.mm.default"]
    assert operators(torch.mm, large, large) == ["mkldnn._linear_pointwise.default"]
    assert operators(torch.mm, large.double(), large.double()) == ["aten.mm.default"]
    assert operators(lambda a, b: torch.addmm(a, a, b), large, large) == ["aten.addmm.default"]
    monkeypatch.setattr(products, "faster_by_onednn", lambda: False)
    assert operators(torch.mm, large, large) == ["aten.mm.default"]


FUNCTIONS = {
    "plain": lambda a, b, c: a @ b,
    "left transposed": lambda a, b, c: b.t() @ a.t(),
    "right transposed": lambda a, b, c: a @ (b + 1).t().contiguous().t(),
    "bias": lambda a, b, c: torch.addmm(c, a, b),
    "bias of one element": lambda a, b, c: torch.addmm(c[:1], a, b),
    "scaled": lambda a, b, c: torch.addmm(c, a, b, beta=2, alpha=3),
    "strided": lambda a, b, c: a[::2] @ b[:, ::3],
    "expanded": lambda a, b, c: c[:5].expand(4, 5) @ b,
    "computed": lambda a, b, c: (a.sin() @ b.cos()).relu(),
    "no rows": lambda a, b, c: a[:0] @ b,
    "nothing to add": lambda a, b, c: a[:, :0] @ b[:0],
}


@needs_onednn
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_by_onednn_equal_eager(name, slow_mkl):
    torch.manual_seed(0)
    args = torch.randn(6, 5), torch.randn(5, 7), torch.randn(7)
    leaves = [a.requires_grad_() for a in args]
    compiled, fn = dovetail.compile(FUNCTIONS[name], fullgraph=True), FUNCTIONS[name]
    got, wanted = compiled(*leaves), fn(*leaves)
    torch.testing.assert_close(got, wanted)
    assert got.stride() == wanted.stride()
    tangent = torch.randn_like(wanted)
    found = torch.autograd.grad(got, leaves, tangent, allow_unused=True)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, leaves, tangent, allow_unused=True))
