"""Tensors that no strides describe run eagerly."""

from __future__ import annotations

import warnings

import pytest
import torch

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
