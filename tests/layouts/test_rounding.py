"""What is to round as eager does keeps eager's layouts: batch norm sums channels_last images with a larger error."""

from __future__ import annotations

import copy

import pytest
import torch

import dovetail


@pytest.mark.parametrize("how", [{"backend": "aot_eager"}, {"options": {"numerics": "eager"}}], ids=str)
def test_normalized_convolutions_are_eagers(how) -> None:
    layers = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8)
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 3, 256, 256)
    exact = copy.deepcopy(model).double()(x.double())
    eager, ours = (float((found - exact).norm()) for found in (model(x), dovetail.compile(model, **how)(x)))
    assert ours < 3 * eager
