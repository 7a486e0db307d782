"""What PyTorch does beside operators, and no graph: the reason, and eager's results with a graph on either side."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from tests.capture.whole import breaks


def hooked(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        y = x.sin() * x
    return y * 2


def kept_on_the_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return x.sin() * x


def forward_mode(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        return tuple(forward_ad.unpack_dual(dual.sin() * dual))


def with_default_device(x):
    y = x + 1
    torch.set_default_device("cpu")
    made = torch.zeros(2) + y[:2]
    torch.set_default_device(None)
    return made


REASONS = {
    hooked: "saved-tensor-hooks", kept_on_the_cpu: "saved-tensor-hooks", forward_mode: "dual-level",
    with_default_device: "device-context",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", REASONS)
def test_ends_the_graph(fn):
    breaks(REASONS[fn], fn, lambda: torch.rand(3, requires_grad=True))
