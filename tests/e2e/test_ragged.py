"""Nested tensors of the layout torch.jagged: kernels on their values."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dovetail


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, t):
        return t + self.down(F.gelu(self.up(self.norm(t))))


PROGRAMS = {
    "pointwise": lambda t: (t.sin() * 2 + t).relu(),
    "a block": Block(),
    "softmax": lambda t: torch.softmax(t, -1) * t,
    "values": lambda t: (t * t).values().cos(),
    "joined": lambda t: torch.cat([t, t * 2], -1),
}


def ragged(call: int) -> torch.Tensor:
    torch.manual_seed(call)
    lengths = [3 + call, 2, 5 + 2 * call]
    return torch.nested.nested_tensor([torch.randn(n, 8) for n in lengths], layout=torch.jagged, requires_grad=True)


def outcome(function, call):
    t = ragged(call)
    result = function(t)
    if result.is_nested:
        assert result.offsets() is t.offsets()
        values = (result * torch.ones_like(result)).values()
    else:
        values = result
    values.square().sum().backward()
    weights = [p.grad for p in function.parameters()] if isinstance(function, nn.Module) else []
    if isinstance(function, nn.Module):
        function.zero_grad()
    assert t.grad.offsets() is t.offsets() and result.shape[1:] == function(t).shape[1:]
    return [values, t.grad.values(), *weights]


@pytest.mark.parametrize("name", PROGRAMS)
def test_ragged_tensors_are_their_values(name):
    dovetail.reset()
    function = PROGRAMS[name]
    compiled = dovetail.compile(function, fullgraph=True)
    for call in range(2):
        torch.testing.assert_close(outcome(compiled, call), outcome(function, call))
    t = ragged(1)
    with torch.profiler.profile() as profile:
        compiled(t)
    names = [event.name for event in profile.events()]
    assert any(each.startswith("dovetail graph") for each in names) and "PythonSubclass" not in names
