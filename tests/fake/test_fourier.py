"""Layouts of Fourier transforms, which the CPU library's plan decides."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.ops.fake import to_fake
from dovetail.ops.fake.tensor import run

aten = torch.ops.aten
TRANSFORMS = {
    "complex to complex": (torch.complex64, lambda x, dim: (aten._fft_c2c.default, (x, dim, 0, True))),
    "backwards": (torch.complex128, lambda x, dim: (aten._fft_c2c.default, (x, dim, 2, False))),
    "real to complex": (torch.float32, lambda x, dim: (aten._fft_r2c.default, (x, dim, 0, True))),
    "real to complex, whole": (torch.float64, lambda x, dim: (aten._fft_r2c.default, (x, dim, 0, False))),
    "complex to real": (
        torch.complex64, lambda x, dim: (aten._fft_c2r.default, (x, dim, 0, max(2 * x.shape[dim[-1]] - 2, 1))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(7,), (5, 4), (4, 6, 5), (3, 1, 4)], ids=str)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_layout(name, shape):
    dtype, call = TRANSFORMS[name]
    axes = range(len(shape))
    for order in itertools.permutations(axes):
        memory = torch.randn([shape[d] for d in order], dtype=dtype)
        x = memory.permute([order.index(d) for d in axes])
        for count in range(1, len(shape) + 1):
            for dim in itertools.permutations(axes, count):
                operator, args = call(x, list(dim))
                real, fake = operator(*args), run(operator, (to_fake(x), *args[1:]), {})
                seen = [(t.shape, t.dtype, [s for s, n in zip(t.stride(), t.shape) if n > 1]) for t in (real, fake)]
                assert seen[0] == seen[1], (x.stride(), dim)
