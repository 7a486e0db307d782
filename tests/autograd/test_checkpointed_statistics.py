"""Checkpointed functions that write to buffers: a batch norm in training updates its statistics again where it is
computed again, in the backward pass, as under PyTorch's engine."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail
from tests.autograd.comparing import BACKENDS


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(4, 2, 3, bias=False), nn.BatchNorm2d(2, momentum=0.3), nn.Dropout(0.2))


def forward(net, x, reentrant):
    h = checkpoint(net.first, x, use_reentrant=reentrant)
    return checkpoint(net.last, h, use_reentrant=reentrant).square().sum(), h.mean()


def one_step(net, program, x):
    sum(program(net, x)).backward()


def two_forward_passes(net, program, x):
    first, second = (sum(program(net, t)) for t in (x, x * 2))
    second.backward()
    first.backward()


def twice(net, program, x):
    loss = sum(program(net, x))
    loss.backward(retain_graph=True)
    loss.backward()


def changed_in_between(net, program, x):
    loss = sum(program(net, x))
    net.first[1].running_mean.zero_()
    loss.backward()


def from_one_result(net, program, x):
    program(net, x)[1].backward()
    program(net, x)[0].backward()


def without_gradients(net, program, x):
    with torch.no_grad():
        program(net, x)
    net.eval()
    sum(program(net, x)).backward()
    net.train()


STEPS = (one_step, two_forward_passes, twice, changed_in_between, from_one_result, without_gradients)


def trained(steps, program):
    torch.manual_seed(0)
    net = Net().double()
    found = []
    for step in (*steps, *steps):
        x = torch.linspace(-1, 1, 72, dtype=torch.float64).sin().view(2, 1, 6, 6).requires_grad_()
        step(net, program, x)
        versions = [b._version for b in net.buffers()]
        found.append(copy.deepcopy((net.state_dict(), [p.grad for p in net.parameters()], x.grad, versions)))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_statistics_are_updated_when_eager_updates_them(step, reentrant, backend):
    compiled = dovetail.compile(forward, fullgraph=True, backend=backend, options={"fallback_random": True})
    want = trained([step], lambda net, x: forward(net, x, reentrant))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*\[uncompiled-graph\]")
        got = trained([step], lambda net, x: compiled(net, x, reentrant))
    torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings(r"ignore:.*\[uncompiled-graph\]")
def test_a_pass_that_is_differentiated_in_turn_computes_them_again_as_often():
    def step(net, program, x):
        gradient = torch.autograd.grad(sum(program(net, x)), x, create_graph=True)[0]
        gradient.square().sum().backward()

    compiled = dovetail.compile(forward)
    found = [trained([step], lambda net, x, f=f: f(net, x, False)) for f in (compiled, forward)]
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got[:3], want[:3])


def _inside(net, x):
    loss = sum(forward(net, x, False))
    loss.backward()
    return loss.detach(), x.sum()


def _by_two(net, x):
    return checkpoint(lambda t: net.first(net.first[1](t.expand(-1, 4, -1, -1))[:, :1]), x, use_reentrant=False)


def _shared(net, x):
    for _ in range(2):
        x = checkpoint(lambda t: net.first[1](t.expand(-1, 4, -1, -1)), x[:, :1], use_reentrant=False)
    return (x.sin().sum(),)


def _read_as_well(net, x):
    y = checkpoint(net.first, x, use_reentrant=False)
    return ((y * net.first[1].running_mean.view(1, -1, 1, 1).clone()).sum(),)


@pytest.mark.filterwarnings(r"ignore:.*\[uncompiled-graph\]")
@pytest.mark.parametrize("program", (_inside, _by_two, _shared, _read_as_well), ids=lambda f: f.__name__)
def test_what_is_not_known_to_be_what_eager_does_is_left_to_it(program):
    """Passes in the graph itself, several writes, and others that read what is written."""

    def step(net, program, x):
        results = program(net, x)
        sum(t.sum() for t in results).backward()

    want, got = (trained([step], f) for f in (program, dovetail.compile(program)))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine[:3], theirs[:3])
