"""Tensors on devices without kernels run through PyTorch, never through code for the CPU."""

from __future__ import annotations

import pytest
import torch

import dovetail

DEVICES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fn", [
    lambda x: torch.softmax(x.sin() + 1, -1),
    lambda x: x @ x.t() + torch.ones(3, device=x.device),
    lambda x: x[torch.zeros(2, dtype=torch.long, device=x.device)],
])  # fmt: skip
def test_other_devices(fn, device):
    x = torch.ones(3, 4, device=device)
    with torch.no_grad():
        want, got = fn(x), dovetail.compile(fn)(x)
    assert got.device == want.device and got.shape == want.shape and got.dtype == want.dtype
    if device != "meta":
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_met_on_the_way(device):
    def fn(x):
        return (x.to(device) + 1).to(x.device) if device != "meta" else x.to(device) + 1

    with torch.no_grad():
        want, got = fn(torch.ones(3)), dovetail.compile(fn)(torch.ones(3))
    assert got.device == want.device and got.shape == want.shape
