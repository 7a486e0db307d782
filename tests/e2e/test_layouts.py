"""How results lie in memory; tensors that no strides describe run eagerly."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.errors import Unsupported
from tests.forks import python


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


@pytest.mark.usefixtures("threads_put_back")
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


def _weights(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(1))


#: What follows a convolution of 16 channels and 8x8 pixels: operators that trust strides, or ask for some.
BEHIND = {
    "a group norm of flattened pixels": lambda y: F.group_norm(y.flatten(2), 4, _weights(16)),
    "a group norm of more dimensions": lambda y: F.group_norm(y.view(2, 16, 2, 4, 8), 4, _weights(16)),
    "attention of permuted images": lambda y: F.scaled_dot_product_attention(*[y.permute(0, 2, 1, 3)] * 3),
    "det": torch.linalg.det,
    "slogdet": lambda y: torch.linalg.slogdet(y)[1],
    "weight norm": lambda y: torch._weight_norm(y[0].flatten(1), _weights(16, 1), 0),
    "pdist": lambda y: F.pdist(y[0].flatten(1)),
    "complex numbers": lambda y: torch.view_as_complex(y.view(2, 16, 32, 2)).abs(),
    "complex numbers of parts": lambda y: torch.view_as_complex(y.unflatten(3, (4, 2))).abs(),
    "a loss of pixels": lambda y: F.nll_loss(y, torch.zeros(2, 8, 8, dtype=torch.int64), reduction="none"),
    "expanded": lambda y: y[:, :1].expand(2, 16, 8, 8).sinh(),
    "dropout": lambda y: F.dropout(y, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
@pytest.mark.parametrize("behind", BEHIND)
def test_what_trusts_strides_behind_a_convolution(behind, backend):
    w, x = (t.requires_grad_() for t in (torch.randn(16, 8, 3, 3) / 8, torch.randn(2, 8, 8, 8)))
    fn = lambda x, w: BEHIND[behind](F.conv2d(x, w, padding=1))
    torch.manual_seed(0)
    want = fn(x, w)
    tangent = torch.randn_like(want)
    gradients = torch.autograd.grad(want, (x, w), tangent)
    torch.manual_seed(0)
    got = dovetail.compile(fn, backend=backend, options={"fallback_random": True})(x, w)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(torch.autograd.grad(got, (x, w), tangent), gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
@pytest.mark.parametrize("write", [
    lambda r, x: r.copy_(x), lambda r, x: r.add_(x), lambda r, x: r.__setitem__(slice(None), x * 2),
    lambda r, x: r[:, 1:].mul_(2),
], ids=["copied", "added", "assigned", "a part"])  # fmt: skip
def test_gaps_between_rows_stay(write, backend):
    def fn(x):
        made = torch.empty_strided((16, 8), (16, 1))
        made.copy_(x)
        write(made, x)
        return made, made.view(torch.int32).to(torch.float32), made.sum(0)

    x = torch.randn(16, 8)
    for got, want in zip(dovetail.compile(fn, backend=backend, fullgraph=True)(x), fn(x), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)


def test_gradients_that_onednn_computes_wrong_are_left_in_rows():
    """Run alone, since it would corrupt memory: 1x1 with a stride over three channels, where others gain."""
    program = """if True:
        import torch, dovetail
        from torch import nn
        side, main = nn.Conv2d(3, 64, 1, 2, bias=False), nn.Conv2d(3, 64, 3, 2, 1, bias=False)
        x = torch.randn(2, 3, 128, 128)
        fn = lambda x: (side(x) + main(x)).relu().mean()
        for f in (fn, dovetail.compile(fn, fullgraph=True)):
            for _ in range(3):
                side.weight.grad = None
                f(x).backward()
            if f is fn:
                want = side.weight.grad
        torch.testing.assert_close(side.weight.grad, want, rtol=1e-3, atol=1e-5)
    """
    made = python("-c", program)
    assert made.returncode == 0, made.stderr


IMAGES = {
    "pad": lambda x: F.pad(x, (0, 1)),
    "average pool": lambda x: F.avg_pool2d(x, 2),
    "max pool": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "adaptive average pool": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive max pool": lambda x: F.adaptive_max_pool2d(x, 2),
    "stack": lambda x: torch.stack([x, x], 1),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_with_channels_last_at_sizes_that_vary(name: str) -> None:
    compiled = dovetail.compile(IMAGES[name], dynamic=True)
    for sizes in ((2, 3, 6, 5), (2, 4, 6, 5), (3, 5, 8, 6)):
        x = torch.randn(sizes).contiguous(memory_format=torch.channels_last)
        for got, want in zip(*(torch.utils._pytree.tree_leaves(f(x)) for f in (compiled, IMAGES[name])), strict=True):
            assert torch.allclose(got, want)
            assert got.stride() == want.stride()
