"""What a caller may write to between the call and the backward pass: inputs that PyTorch's engine does not keep."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dovetail

PROGRAMS = {
    "a clone": lambda x, w: x.clone() * w,
    "a clone of a view": lambda x, w: x.t().clone()[1:] * w[1:],
    "a view of a clone": lambda x, w: x.clone().view(-1)[::2] * w.view(-1)[::2],
    "a copy": lambda x, w: x.to(x.dtype, copy=True) * w,
    "a part of what was put together": lambda x, w: torch.cat([x, x + 1])[:4] * w,
    "one of a stack": lambda x, w: torch.stack([x, x])[0] * w,
    "what is computed": lambda x, w: (x * 2) * w,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_that_eager_does_not_keep_may_be_written_to(name):
    found = []
    for call in (PROGRAMS[name], dovetail.compile(PROGRAMS[name], fullgraph=True)):
        torch.manual_seed(0)
        x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
        result = call(x, w)
        x.mul_(10)
        result.sum().backward()
        found.append(w.grad)
    torch.testing.assert_close(*found)


def test_what_eager_keeps_may_not():
    x = torch.ones(4)
    result = dovetail.compile(lambda x, w: x.clone() * w + x * w, fullgraph=True)(x, torch.ones(4, requires_grad=True))
    x.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


class Queue(nn.Module):
    """Negatives of contrastive learning: the last keys, of which the oldest are overwritten in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(6, 4), nn.Linear(6, 4).requires_grad_(False)
        self.register_buffer("queue", torch.linspace(-1, 1, 48).sin().view(4, 12))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        query = F.normalize(self.query(x), dim=1)
        logits = query @ self.queue.clone().detach()
        with torch.no_grad():
            at = int(self.at)
            self.queue[:, at : at + len(x)] = F.normalize(self.key(x), dim=1).T
            self.at[0] = (at + len(x)) % 12
        return logits


def test_a_queue_of_negatives():
    found = []
    for compile in (lambda model: model, dovetail.compile):
        torch.manual_seed(0)
        model = Queue()
        call = compile(model)
        for _ in range(5):
            call(torch.randn(4, 6)).square().sum().backward()
        found.append([*model.state_dict().values(), model.query.weight.grad])
    torch.testing.assert_close(*found)
