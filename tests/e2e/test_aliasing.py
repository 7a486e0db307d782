"""Results that share memory with an argument do so as in eager: same values, same memory, same identity."""

from __future__ import annotations

import pytest
import torch

import dovetail

CASES = {
    "itself": lambda x: x,
    "detach": lambda x: x.detach(),
    "view_as": lambda x: x.view_as(x),
    "squeeze of nothing": lambda x: x.squeeze(),
    "row": lambda x: x[1],
    "transposed": lambda x: x.t(),
    "slice": lambda x: x[:, 1:],
    "conj": lambda x: x.conj(),
    "mH": lambda x: x.mH,
    "conj of a row": lambda x: x[1].conj(),
    "imag": lambda x: x.imag if x.is_complex() else x,
    "computed": lambda x: x + 1,
    "view of computed": lambda x: (x + 1).view(-1),
    "conj of computed": lambda x: (x + 1).conj(),
}


@pytest.mark.filterwarnings("ignore:dovetail runs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("name", CASES)
def test_aliasing(name, dtype):
    fn = CASES[name]
    x = torch.arange(12).reshape(3, 4).to(dtype) * (1 + 2j if dtype.is_complex else 1)
    with torch.no_grad():
        want, got = fn(x), dovetail.compile(fn)(x)
        assert torch.equal(got.resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())
        assert (got is x) is (want is x)
        assert (got.is_conj(), got.stride()) == (want.is_conj(), want.stride())
        assert (got.data_ptr() == x.data_ptr()) is (want.data_ptr() == x.data_ptr())
        got += 1
        want_x = torch.arange(12).reshape(3, 4).to(dtype) * (1 + 2j if dtype.is_complex else 1)
        again = fn(want_x)
        again += 1
    assert torch.equal(x, want_x)


@pytest.mark.parametrize("backend", ("eager", "aot_eager", "dovetail"))
def test_two_tensors_over_one_memory_are_two_objects(backend):
    def fn(x):
        y = x * 2
        return y, y.detach(), y, y.view(3)

    first, second, third, fourth = dovetail.compile(fn, backend=backend, fullgraph=True)(torch.ones(3))
    assert first is third and first is not second and first is not fourth and second is not fourth
    assert len({t.data_ptr() for t in (first, second, fourth)}) == 1


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


SOMETIMES = {
    "turned": lambda x: doubled(x.t().contiguous()),
    "in a row": lambda x: doubled(x.t().flatten()) + 1,
    "returned": lambda x: x.t().contiguous(),
    "part": lambda x: (x[:, : x.shape[1] - 1].contiguous(), x.add_(1)),
    "last rows": lambda x: doubled(x.t().tensor_split(2)[1].flatten()),
    "another shape": lambda x: (y := x * 1, doubled(y.t().reshape(x.shape)))[0],
    "computed": lambda x: x.t().reshape(-1).relu(),
}


@pytest.mark.parametrize("name", SOMETIMES)
def test_whether_a_copy_is_made_depends_on_sizes(name: str) -> None:
    compiled = dovetail.compile(SOMETIMES[name])
    for sizes in ((4, 3), (5, 3), (6, 4), (1, 3), (1, 1), (2, 3), (3, 1), (2, 2), (7, 5)):
        found = []
        for function in (SOMETIMES[name], compiled):
            x = torch.arange(float(sizes[0] * sizes[1])).view(sizes)
            results = torch.utils._pytree.tree_leaves(function(x))
            shared = [t.numel() and t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for t in results]
            found.append(([t.tolist() for t in (*results, x)], shared))
        assert found[0] == found[1], sizes


def test_conjugates_of_computed_numbers() -> None:
    @dovetail.compile
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = x.conj().imag
        return left, left + left, (x * 2).conj().imag[1:].exp(), x[:1].conj()[..., :2].imag * 2

    for rows in (3, 4, 5):
        x = torch.randn(rows, 3, dtype=torch.complex64)
        for got, want in zip(parts(x), parts.__wrapped__(x), strict=True):
            assert torch.allclose(got, want)


def test_numbers_whose_sign_is_left_for_later() -> None:
    def shifted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * x.sum()
        x.add_(1)
        return y, x.exp()

    found = []
    for function in (shifted, dovetail.compile(shifted)):
        x = torch.tensor([1 + 2j, 3 - 1j]).conj().imag
        found.append([t.tolist() for t in (*function(x), x)])
    assert found[0] == found[1]


def test_conjugates_of_real_numbers_are_copies() -> None:
    x = torch.randn(3)
    assert dovetail.compile(lambda x: x.clone().conj_physical_())(x).data_ptr() != x.data_ptr()
