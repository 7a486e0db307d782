"""Matrix products go to the library that is faster on the processor, and mean the same."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.ir.evaluate import evaluate
from dovetail.ir.parse import parse_program
from dovetail.ir.text import program_text
from dovetail.lower import lower
from dovetail.ops.lowering import products
from dovetail.options import Options
from tests.normalize.harness import functional
from tests.schedule.test_lifetimes import on
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


def test_which_products_are_loops():
    row, column, matrix = torch.ones(1, 32), torch.ones(32, 1), torch.ones(32, 32)
    for left, right in ((row, matrix), (matrix, column), (row.double(), matrix.double()), (row, matrix.t())):
        assert operators(torch.mm, left, right) == []
    assert operators(torch.addmm, torch.ones(32), row, matrix) == []
    assert operators(torch.mv, matrix, torch.ones(32)) == []
    assert operators(torch.nn.functional.linear, torch.ones(32), matrix, torch.ones(32)) == []
    assert operators(torch.mm, row.half(), matrix.half()) == ["aten.mm.default"]
    assert operators(torch.mv, matrix.to(torch.int64), torch.ones(32, dtype=torch.int64)) == ["aten.mv.default"]
    assert operators(lambda a, b: torch.addmm(a, a, b, beta=2), row, matrix) == ["aten.addmm.default"]
    rows, matrices = row.expand(5, 1, 32), torch.ones(5, 32, 32)
    assert operators(torch.bmm, rows, matrices) == operators(torch.bmm, matrices, rows.mT) == []
    assert operators(torch.bmm, matrices, matrices) == ["aten.bmm.default"]
    wide = torch.ones(5, 32, products.LONG_ROWS + 1)
    assert operators(torch.bmm, rows, wide) == ["aten.bmm.default"]
    assert operators(torch.bmm, rows, wide.mT.contiguous().mT) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_which_products_are_loops_on_gpus(dtype):
    """Those of vectors, in any type."""
    def found(fn, *args) -> list[str]:
        program = lower(on("cuda", functional(fn, *args)), Options())
        return [str(item.operator) for item in program.items if hasattr(item, "operator")]

    x = torch.ones(6, 8, products.LONG_ROWS + 1, dtype=dtype)
    assert found(torch.bmm, x, x[:, :1].mT) == found(torch.bmm, x[:, :1], x.mT) == []
    assert found(torch.mm, x[0], x[0, :1].t()) == found(torch.mv, x[0], x[0, 0]) == []
    assert found(torch.addmm, x[0, :1, :8], x[0, :1], x[0].t()) == ["aten.addmm.default"]
    assert found(torch.nn.functional.linear, x[0, :1], x[0], x[0, :, 0]) == []
    assert found(torch.bmm, x, x.mT) == ["aten.bmm.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_outer_products_are_multiplications(dtype):
    torch.manual_seed(0)
    columns, bias = torch.randn(3, 40, 1).to(dtype), torch.randn(30).to(dtype)
    rows = torch.randn(3, 1, 30).to(dtype)
    for fn in (torch.bmm, lambda a, b, *c: a[0] @ b[0], lambda a, b, c: torch.addmm(c, a[0], b[0])):
        args = (columns, rows, bias)[: 2 if fn is torch.bmm else 3]
        assert operators(fn, *args) == []
        torch.testing.assert_close(dovetail.compile(fn, fullgraph=True)(*args), fn(*args))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_half_types_are_exact_until_they_are_stored(dtype):
    """As the library's on a GPU."""
    torch.manual_seed(0)
    left, right = torch.randn(3, 9, 64).to(dtype), torch.randn(3, 64, 1).to(dtype)
    program = lower(on("cuda", functional(torch.bmm, left, right)), Options())
    (got,) = evaluate(parse_program(program_text(program).replace(" on cuda", "")), (left, right))
    torch.testing.assert_close(got, (left.double() @ right.double()).to(dtype), rtol=0.01, atol=1e-5)


WITH_VECTORS = {
    "row": lambda a, b, v, c: a[:1] @ b,
    "row by transposed": lambda a, b, v, c: b.t()[:1] @ a.t(),
    "row with bias": lambda a, b, v, c: torch.addmm(c, a[:1], b),
    "row with a bias of one element": lambda a, b, v, c: torch.addmm(c[:1], a[:1], b),
    "row, scaled": lambda a, b, v, c: torch.addmm(c, a[:1], b, beta=2, alpha=3),
    "row, computed": lambda a, b, v, c: (a[:1].sin() @ b.cos()).relu(),
    "row by strided": lambda a, b, v, c: a[2:3, ::3] @ b[::3, ::2],
    "row by expanded": lambda a, b, v, c: a[:1] @ v[:, None].expand(300, 7),
    "column": lambda a, b, v, c: a @ b[:, :1],
    "column, transposed": lambda a, b, v, c: b.t() @ a.t()[:, 3:4],
    "column with bias": lambda a, b, v, c: torch.addmm(c[:1], a, b[:, :1]),
    "row by column": lambda a, b, v, c: a[:1] @ b[:, :1],
    "rows by matrices": lambda a, b, v, c: torch.stack([a[:1], a[1:2]]) @ torch.stack([b, b + 1]),
    "rows by transposed matrices": lambda a, b, v, c: b.t().view(7, 1, 300) @ a.t().expand(7, 300, 6),
    "matrices by columns": lambda a, b, v, c: a.expand(7, 6, 300) @ b.t()[:, :, None],
    "rows by columns": lambda a, b, v, c: a[:, None] @ b.t()[:6, :, None],
    "outer of each": lambda a, b, v, c: a[:, :, None] @ c.expand(6, 1, 7),
    "no matrices": lambda a, b, v, c: a[:0, None] @ b.expand(0, 300, 7),
    "outer": lambda a, b, v, c: a[:1, :1] @ b[:1],
    "matrix by vector": lambda a, b, v, c: a @ v,
    "vector by matrix": lambda a, b, v, c: v @ b,
    "vector by layer": lambda a, b, v, c: torch.nn.functional.linear(v, a, a[:, 0]),
    "softmax of scores": lambda a, b, v, c: torch.softmax(a @ v, 0) @ a,
    "no columns": lambda a, b, v, c: a[:1] @ b[:, :0],
    "nothing to add": lambda a, b, v, c: a[:1, :0] @ b[:0],
    "nothing to add but a bias": lambda a, b, v, c: torch.addmm(c, a[:1, :0], b[:0]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WITH_VECTORS)
def test_products_with_vectors_equal_eager(name, dtype):
    torch.manual_seed(0)
    fn = WITH_VECTORS[name]
    args = [torch.randn(*size, dtype=dtype) for size in ((6, 300), (300, 7), (300,), (7,))]
    leaves = [a.requires_grad_() for a in args]
    got, wanted = dovetail.compile(fn, fullgraph=True)(*leaves), fn(*leaves)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
    assert got.stride() == wanted.stride()
    tangent = torch.randn_like(wanted)
    found = torch.autograd.grad(got, leaves, tangent, allow_unused=True)
    exact = torch.autograd.grad(wanted, leaves, tangent, allow_unused=True)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-4)


def test_products_with_vectors_of_any_size():
    fn = lambda a, b, c: torch.addmm(c, a, b)
    compiled = dovetail.compile(fn, fullgraph=True, dynamic=True)
    for length, columns in ((3, 5), (700, 64), (65, 129), (1, 1), (0, 2), (2, 0)):
        args = torch.randn(1, length), torch.randn(length, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=1e-5, atol=1e-4)


def test_eagers_numerics_keep_its_library_for_vectors():
    compiled = dovetail.compile(torch.mm, options={"numerics": "eager"})
    for left, right in ((torch.randn(1, 300), torch.randn(300, 70)), (torch.randn(70, 300), torch.randn(300, 1))):
        assert torch.equal(compiled(left, right), torch.mm(left, right))
