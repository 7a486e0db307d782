"""Training steps in which the graph ends before `backward()`: its gradients reach what follows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import Unsupported

WAYS = {
    "in the same function": "loss = net(x); dovetail.graph_break(); opt.zero_grad(); loss.backward(); opt.step()",
    "twice": "loss = net(x); dovetail.graph_break(); opt.zero_grad(); loss.backward(retain_graph=True); "
    "loss.backward(); opt.step()",
    "by a number": "loss = net(x); log.append(loss.item()); opt.zero_grad(); loss.backward(); opt.step()",
    "of both parts": "a = net(x); dovetail.graph_break(); loss = a + net(x + 1); opt.zero_grad(); loss.backward(); "
    "opt.step()",
    "clipped": "loss = net(x); dovetail.graph_break(); opt.zero_grad(); loss.backward(); "
    "nn.utils.clip_grad_norm_(net.parameters(), 0.1); opt.step()",
    "read": "loss = net(x); dovetail.graph_break(); loss.backward(); log.append(net.layer.weight.grad.sum()); "
    "opt.step()",
    "accumulated": "loss = net(x); dovetail.graph_break(); loss.backward(); opt.step()",
    "of an earlier step": "log.append(net(x)); opt.zero_grad(); log[-2 if log[1:] else -1].backward(); opt.step(); "
    "log[:] = log[-1:]",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x).pow(2).sum()


def weights(way: str, kind: type, compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = Net()
    names = {"net": net, "opt": kind(net.parameters(), 0.01), "log": [], "nn": nn, "dovetail": dovetail}
    exec(f"def step(x): {WAYS[way]}; return loss.detach() if 'loss' in locals() else None", names)
    step = dovetail.compile(names["step"], backend="eager") if compiled else names["step"]
    if way == "of an earlier step":
        names["log"].append(net(torch.ones(3)))
    for k in range(4):
        step(torch.arange(3.0) + k)
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("way", WAYS)
def test_parameters(way, kind):
    torch.testing.assert_close(weights(way, kind, True), weights(way, kind, False))


def test_as_one_graph():
    weight = torch.ones(3, requires_grad=True)

    def rest(loss):
        loss.backward()
        return weight.grad * 2

    with pytest.raises(Unsupported, match="tensor-grad"):
        dovetail.compile(rest, fullgraph=True)((weight * 3).sum())
    dovetail.compile(lambda loss: loss.backward(), fullgraph=True)((weight * 3).sum())
    assert weight.grad.tolist() == [3, 3, 3]
