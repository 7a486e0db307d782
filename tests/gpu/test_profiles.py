"""What `torch.profiler` shows of compiled code on a device, launched one by one and as a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import dovetail

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]


def softmax(x):
    return torch.softmax(x, -1) * 2


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_calls_graphs_and_kernels(mode: str) -> None:
    compiled, x = dovetail.compile(softmax, mode=mode, fullgraph=True), torch.randn(8, 64, device="cuda")
    for _ in range(3):
        compiled(x)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        compiled(x)
        torch.cuda.synchronize()
    place = f"test_profiles.py:{softmax.__code__.co_firstlineno} softmax"
    names = {event.name for event in found.events() if event.device_type == DeviceType.CPU}
    assert f"dovetail: {place}" in names
    assert any(name.startswith("dovetail graph ") and name.endswith(place) for name in names)
    started = [name for name in names if name.startswith("k0__softmax_mul test_profiles.py:")]
    assert bool(started) == (mode != "default")
    kernels = {event.name for event in found.events() if event.device_type == DeviceType.CUDA}
    assert not kernels or any(name.startswith("k_max_sub_exp_sum_div") for name in kernels)  # CUPTI may be refused
