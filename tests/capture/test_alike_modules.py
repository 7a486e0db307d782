"""Loops over modules with graph breaks: modules that are alike share entries, and what differs in them is seen."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare
from tests.capture.test_growing import entries

COUNT = 12


class Block(nn.Module):
    """Every third has no bias, every fifth has a scale of its own."""

    def __init__(self, k, kind):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=kind != "bias" or k % 3 > 0)
        self.norm = nn.BatchNorm1d(4) if kind == "norm" else nn.LayerNorm(4)
        self.drop = nn.Dropout(0.5 if kind == "drop" and k % 2 else 0.0)
        self.index, self.calls, self.kind = k, 0, kind
        self.register_buffer("seen", torch.zeros(()))
        if kind == "scale" and k % 5 == 0:
            self.scale = 2.0
        if kind == "forward" and k == 7:
            self.forward = lambda x: x * 3
        if kind == "hook" and k % 4 == 3:
            self.register_forward_hook(lambda module, args, out: out + module.index)
        if kind == "inner hook" and k % 4 == 3:
            self.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        if kind == "eval" and k > 6:
            self.eval()

    def forward(self, x):
        x = x + torch.relu(self.norm(self.linear(x)))
        if self.kind == "break":
            dovetail.graph_break()
        if self.kind == "count":
            self.calls += 1
            self.seen.add_(self.calls)
        if self.kind == "replace":
            self.seen = self.seen + 1
        if hasattr(self, "scale"):
            x = x * self.scale
        return self.drop(x) + self.index


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(Block(k, kind) for k in range(COUNT))
        if kind == "shared":
            for k in (4, 5, 9):
                self.layers[k].linear.weight = self.layers[3].linear.weight
        if kind == "twice":
            self.layers[8] = self.layers[2]
        if kind == "classes":
            for k in (1, 5, 9):
                self.layers[k] = nn.Tanh()
        if kind == "frozen":
            self.layers[6].requires_grad_(False)
        self.table = {layer: k for k, layer in enumerate(self.layers)}
        self.last = None

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if self.kind != "break":
                dovetail.graph_break()
            if self.kind == "is" and layer is self.layers[3]:
                x = x * 5
            if self.kind == "key":
                x = x + self.table[layer]
            if self.kind == "kept":
                self.last = layer
            if self.kind == "index":
                x = x + self.layers[k - 1].linear.weight.sum() * self.layers[k].index
            if self.kind == "isinstance" and isinstance(layer, Block):
                x = x + 1
        return x


KINDS = (
    "plain", "break", "bias", "norm", "drop", "count", "replace", "scale", "forward", "hook", "inner hook", "eval",
    "shared", "twice", "classes", "frozen", "is", "key", "kept", "index", "isinstance",
)  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_differs_is_seen(kind, backend):
    torch.manual_seed(0)
    ours = Net(kind).double()
    theirs = copy.deepcopy(ours)
    theirs.table = {layer: k for k, layer in enumerate(theirs.layers)}
    compiled = dovetail.compile(ours, backend=backend)
    for call in range(2):
        x = torch.randn(5, 4, dtype=torch.double)
        results = []
        for net, run in ((theirs, theirs), (ours, compiled)):
            torch.manual_seed(call)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = run(x)
            result.sum().backward()
            state = [net.state_dict(), [p.grad for p in net.parameters()], [getattr(m, "calls", 0) for m in net.layers]]
            results.append((result.detach(), state, net.last is net.layers[-1]))
        assert_close(*results)
    assert ours.last is None or type(ours.last) is Block


def assert_close(actual, expected):
    torch.testing.assert_close(actual[0], expected[0])
    torch.testing.assert_close(actual[1][0], expected[1][0])
    for a, b in zip(actual[1][1], expected[1][1]):
        assert (a is None) is (b is None)
        torch.testing.assert_close(a if a is not None else 0, b if b is not None else 0)
    compare(actual[1][2], expected[1][2]), compare(actual[2], expected[2])


@pytest.mark.parametrize("kind", ["plain", "break", "count", "norm", "isinstance", "kept", "index"])
def test_modules_that_are_alike_share_entries(kind):
    torch.manual_seed(0)
    net = Net(kind)
    compiled = dovetail.compile(net, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            compiled(torch.randn(5, 4))
    assert max(entries(compiled)) <= 4
