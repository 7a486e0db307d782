"""Layouts of what image operators and their gradients give, for arguments in either memory format."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.ops.fake.tensor import run
from dovetail.ops.table import functional_row

aten = torch.ops.aten
X, GRADIENT, PADDED = torch.randn(2, 4, 6, 6), torch.randn(2, 4, 6, 6), torch.randn(2, 4, 9, 10)
CHANNEL, PIXEL = torch.rand(4), torch.rand(2, 4, 6, 1)
NORM = (CHANNEL, CHANNEL, CHANNEL, CHANNEL, CHANNEL, True, 1e-5)
ALL, SOME = [True, True, True], [True, False, True]

CALLS = {
    "threshold": (aten.threshold_backward.default, GRADIENT, X, 0.5),
    "elu": (aten.elu_backward.default, GRADIENT, 1.0, 1.0, 1.0, False, X),
    "hardswish": (aten.hardswish_backward.default, GRADIENT, X),
    "gelu": (aten.gelu_backward.default, GRADIENT, X),
    "hardshrink": (aten.hardshrink_backward.default, GRADIENT, X, 0.5),
    "softshrink": (aten.softshrink_backward.default, GRADIENT, X, 0.5),
    "hardsigmoid": (aten.hardsigmoid_backward.default, GRADIENT, X),
    "leaky relu": (aten.leaky_relu_backward.default, GRADIENT, X, 0.1, False),
    "mish": (aten.mish_backward.default, GRADIENT, X),
    "softplus": (aten.softplus_backward.default, GRADIENT, X, 1.0, 20.0),
    "batch norm": (aten.native_batch_norm_backward.default, GRADIENT, X, *NORM, ALL),
    "batch norm, some": (aten.native_batch_norm_backward.default, GRADIENT, X, *NORM, SOME),
    "layer norm": (
        aten.native_layer_norm_backward.default, GRADIENT, X, [6], PIXEL, PIXEL, torch.rand(6), torch.rand(6), ALL,
    ),
    "layer norm, some": (
        aten.native_layer_norm_backward.default, GRADIENT, X, [6], PIXEL, PIXEL, torch.rand(6), torch.rand(6), SOME,
    ),
    "reflection pad": (aten.reflection_pad2d.default, X, [1, 3, 2, 1]),
    "reflection pad, backward": (aten.reflection_pad2d_backward.default, PADDED, X, [1, 3, 2, 1]),
    "replication pad, backward": (aten.replication_pad2d_backward.default, PADDED, X, [1, 3, 2, 1]),
    "pixel shuffle": (aten.pixel_shuffle.default, X, 2),
    "channel shuffle": (aten.channel_shuffle.default, X, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_layout(name):
    operator, *args = CALLS[name]
    images = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor) and a.dim() == 4 and a.shape[-1] > 1]
    for formats in itertools.product((torch.contiguous_format, torch.channels_last), repeat=len(images)):
        given = list(args)
        for k, memory_format in zip(images, formats):
            given[k] = args[k].contiguous(memory_format=memory_format)
        fakes = [to_fake(a) if isinstance(a, torch.Tensor) else a for a in given]
        assert seen(operator(*given)) == seen(run(operator, tuple(fakes), {})), formats


def seen(result):
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [None if t is None else (tuple(t.shape), t.stride(), t.dtype) for t in results]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_lines_that_were_convolved(transposed, dtype):
    """As images of one row."""
    x, gradient = torch.randn(2, 4, 5, dtype=dtype), torch.randn(2, 6, 5, dtype=dtype)
    w = torch.randn((4, 6, 3) if transposed else (6, 4, 3), dtype=dtype)
    rest = [6], [1], [1], [1], transposed, [0], 1
    for given in itertools.product(*((t, t.mT.contiguous().mT) for t in (gradient, x, w))):
        real = aten.convolution_backward.default(*given, *rest, ALL)
        assert seen(real) == seen(run(aten.convolution_backward.default, (*map(to_fake, given), *rest, ALL), {}))


@pytest.mark.parametrize("operator", ["native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes, last", [((2, 3, 4, 5), None), ((2, 3, 4, 5), torch.channels_last), ((6, 3), None)])
def test_batch_norms_of_a_gpu_are_told_as_by_pytorchs_own_decomposition(operator, dtype, training, sizes, last):
    """Which takes milliseconds each: it is written for `meta` tensors, whose statistics are those of a GPU."""

    gpu, wide = torch.device("cuda", 0), torch.promote_types(dtype, torch.float32)
    x = torch.empty(sizes, dtype=dtype, device="meta").contiguous(memory_format=last or torch.contiguous_format)
    channels = [torch.empty(3, dtype=wide, device="meta") for _ in range(4)]

    def check(function, *given):
        fakes = [FakeTensor(g.shape, g.stride(), g.dtype, gpu) if isinstance(g, torch.Tensor) else g for g in given]
        told, wanted = functional_row(function).shape(*fakes), function(*given)
        assert [(t.sizes, t.strides, t.dtype) for t in told] == [(t.shape, t.stride(), t.dtype) for t in wanted]

    check(getattr(aten, operator).default, x, *channels, training, 0.1, 1e-5)
    check(aten.native_batch_norm_backward.default, x, x, *channels[:1], *channels, True, 1e-5, ALL)
