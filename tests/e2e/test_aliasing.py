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
