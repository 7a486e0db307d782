"""How results lie in memory; tensors that no strides describe run eagerly."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.errors import Unsupported


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse, torch.Tensor.to_mkldnn])
def test_they_run_eagerly(convert):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = convert(torch.eye(3) * 2)
        fn = lambda x, y: (x @ y if x.layout is not torch._mkldnn else x + x)
        want, got = fn(x, torch.ones(3, 3)), dovetail.compile(fn)(x, torch.ones(3, 3))
        assert got.layout is want.layout
        torch.testing.assert_close(*(t.to_dense() if t.layout is not torch.strided else t for t in (got, want)))
        with pytest.raises(Unsupported, match="sparse-tensor"):
            dovetail.compile(fn, fullgraph=True)(x, torch.ones(3, 3))


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("counts", [(1, 2), (2, 1)], ids=str)
@torch.no_grad()
def test_the_number_of_threads_changes_what_a_library_returns(counts):
    """PyTorch multiplies matrices on one thread, and keeps channels last with oneDNN on several."""
    w = torch.randn(2, 3, 1, 1, 1)
    fn = lambda x: F.conv3d(x, w).relu() + 1
    compiled, x = dovetail.compile(fn), torch.randn(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    for count in (*counts, *counts):
        torch.set_num_threads(count)
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("forward", [F.conv2d, F.conv3d], ids=["images", "volumes"])
@pytest.mark.parametrize("first", [True, False], ids=["on first", "off first"])
def test_a_library_that_is_switched_off_or_on(forward, first):
    rank = 4 if forward is F.conv2d else 5
    w = torch.randn(4, 3, *[2] * (rank - 2), requires_grad=True)
    fn = lambda x: (forward(x.sin(), w).relu() + 1).sum()
    compiled, base = dovetail.compile(fn), torch.randn(2, 3, *[6] * (rank - 2))
    x = base.contiguous(memory_format=torch.channels_last if rank == 4 else torch.channels_last_3d).requires_grad_()
    for enabled in (first, not first):
        with torch.backends.mkldnn.flags(enabled=enabled):
            got, want = compiled(x), fn(x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got, (x, w)), torch.autograd.grad(want, (x, w)))
